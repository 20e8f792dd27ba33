package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// exec runs a script of a file operation, to its end. It travels as those of commands
// do. One whose answer is lost is run again if that comes to the same; of any other
// what it has said is kept.
func (s *session) exec(ctx context.Context, argv []string) (stdout []byte, exit int, stderr []byte, err error) {
	if len(argv) < 4 || argv[0] != "/bin/sh" || argv[1] != "-c" {
		return nil, 0, nil, fmt.Errorf("a file operation in the session that is no script: %w", errors.ErrUnsupported)
	}
	r := run{}
	if bounded(argv[4:]) {
		r.timeout = s.client.timeout
	}
	if repeatable(argv[4:]) {
		r.argv, r.env = scripted(sayHead+argv[2], argv[4:])
		ran, text, err := s.execAgain(ctx, r, tries)
		if err != nil {
			return nil, 0, nil, err
		}
		return []byte(text), *ran.ExitCode, []byte(*ran.Stderr), nil
	}
	return s.execOnce(ctx, r, argv[2], argv[4:])
}

// execOnce runs a script that says little, and asks again for what it has said.
func (s *session) execOnce(ctx context.Context, r run, script string, args []string) (stdout []byte, exit int, stderr []byte, err error) {
	name := newID()
	earlier := s.kept.take()
	r.argv, r.env = scripted(keepingScript(s.facts().tmp, name, earlier, script), args)
	_, text, err := s.execAgain(ctx, r, 1)
	if err != nil {
		s.arrived(earlier...)
	}
	if loses(err) {
		r.argv, r.env = scripted(sayHead+resultScript+"_b_kept \"$1\" \"$2\" && cat \"$_b_k\"\nexit 0\n", []string{s.facts().tmp, name})
		var again error
		if _, text, again = s.execAgain(ctx, r, tries); again == nil && text != "" {
			err = nil
		}
	}
	if err != nil {
		return nil, 0, nil, err
	}
	s.arrived(name)
	out, rest, _ := strings.Cut(text, "|")
	status, said, ok := strings.Cut(rest, " ")
	if exit, err = strconv.Atoi(status); err != nil || !ok {
		return nil, 0, nil, fmt.Errorf("%w (it says %q)", errScript, short(text))
	}
	return []byte(out), exit, []byte(said), nil
}

// keepingScript runs a script and keeps what it says: its output, which holds no |, its
// exit code and its errors. They are told even if there is no room to keep them.
func keepingScript(tmp, name string, earlier []string, script string) string {
	return sayHead + resultScript +
		"_b_t=" + quote(tmp) + "\n_b_sweep \"$_b_t\" '" + strings.Join(earlier, " ") + "'\n_b_keep \"$_b_t\" " + name + `
_b_script() {
` + script + `
}
_b_o=$({
	_b_e=$( (_b_script "$@") 2>&1 1>&5 5>&-)
	printf '|%s %s' "$?" "$_b_e"
} 5>&1)
umask 077
{ printf '%s\n' "$_b_o" >"$_b_k"; } 2>/dev/null
printf '%s\n' "$_b_o"
exit 0
`
}

// execAgain runs a script until its answer arrives, at most so often, and returns what
// it said.
func (s *session) execAgain(ctx context.Context, r run, times int) (ran *runAnswer, text string, err error) {
	for range times {
		r.id = newID()
		err = s.call(ctx, func(held *access) (err error) {
			ran, err = s.post(ctx, held, r)
			return err
		})
		if err == nil && ran.lost() {
			err = errLost
		}
		if !loses(err) {
			break
		}
	}
	switch {
	case err != nil:
		if !errors.Is(err, workspace.ErrUnavailable) && !errors.Is(err, workspace.ErrInvalid) {
			s.abandon(r.id) //nolint:contextcheck // the caller's is over, or as good as
		}
		return nil, "", err
	case ran.ExitCode == nil:
		return nil, "", fmt.Errorf("a file operation in the session came to %s: %w", ran.ended(), workspace.ErrTransient)
	}
	text, _ = ran.said()
	return ran, text, nil
}

// bounded reports whether a file operation takes no longer where there is more, so that
// it is given the time of any request. What removes, lists or copies may take as long as
// a command.
func bounded(args []string) bool {
	if len(args) < 2 {
		return false
	}
	switch strings.TrimPrefix(args[1], "r") {
	case "op_remove", "op_readdir", "op_spool", "op_finish":
		return false
	}
	return true
}

// repeatable reports whether a file operation comes to the same if it is made twice:
// what changes nothing, or sets something, or replaces a file in one step.
func repeatable(args []string) bool {
	if len(args) < 2 {
		return false
	}
	switch strings.TrimPrefix(args[1], "r") { // after how much is to be told
	case "op_stat", "op_lstat", "op_readdir", "op_open", "op_realpath", "op_readlink", "op_probe",
		"op_mkdir", "op_chmod", "op_chtimes":
		return true
	case "op_put": // path, mode, exclusive, append
		return len(args) > 5 && args[4] == "r" && args[5] == "r"
	}
	return false
}
