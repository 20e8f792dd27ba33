package sandboxd

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

//go:embed probe.sh
var probeScript string

const (
	// runSlack is what a run may take beyond the service's ceiling: it stops a command
	// within five seconds, six where something escapes it, and then has to answer.
	runSlack = 20 * time.Second
	// stopCallTimeout bounds the service's own stop, which is the last resort.
	stopCallTimeout = 5 * time.Second
)

// run is one request to run a program.
type run struct {
	argv    []string
	env     map[string]string
	id      string        // a new one if empty
	timeout time.Duration // for the answer; the service's ceiling if zero
}

// newID is a word that nobody else knows, of the syntax that the service wants.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// post runs a program and returns when it has ended. It is sent once.
func (s *session) post(ctx context.Context, held *access, r run) (*runAnswer, error) {
	const doing = "running a command"
	if r.id == "" {
		r.id = newID()
	}
	timeout := r.timeout
	if timeout == 0 {
		timeout = held.ceiling() + runSlack
	}
	var ran runAnswer
	err := s.client.json(ctx, request{
		doing: doing, method: http.MethodPost, path: s.path("run"), token: held.token, timeout: timeout,
	}, runRequest{Argv: r.argv, Env: r.env, RunID: r.id}, &ran)
	if err == nil && (ran.Stdout == nil || ran.Stderr == nil) {
		err = s.client.nonsense(doing, errors.New("an answer without stdout or stderr"))
	}
	if err != nil {
		return nil, err
	}
	if ran.ExitCode != nil && *ran.ExitCode != 0 && *ran.Stdout == "" && strings.Contains(*ran.Stderr, "argument list too long") {
		return nil, fmt.Errorf("command: its arguments and environment are too long for the workspace's system: %w (%w)", workspace.ErrInvalid, syscall.E2BIG)
	}
	return &ran, nil
}

// ended tells how a run came to its end, for errors.
func (a *runAnswer) ended() string {
	switch {
	case a.TimedOut:
		return "the service's limit of time"
	case a.OutputLimited:
		return "the service's limit of output"
	case a.ExitCode == nil:
		return "no exit code"
	}
	return "exit code " + strconv.Itoa(*a.ExitCode)
}

// stopCall has the service stop a run, whatever it knows of it.
func (s *session) stopCall(ctx context.Context, id string) error {
	held := s.access.Load()
	return s.client.json(ctx, request{
		doing: "stopping a command", method: http.MethodPost, path: s.path("runs", id, "stop"), token: held.token, timeout: stopCallTimeout,
	}, nil, nil)
}

// exec runs a program that writes text, to its end: what file operations are derived
// from. A script travels as those of commands do.
func (s *session) exec(ctx context.Context, argv []string) (stdout []byte, exit int, stderr []byte, err error) {
	r := run{argv: argv}
	if len(argv) > 3 && argv[0] == "/bin/sh" && argv[1] == "-c" {
		r.argv, r.env = scripted(argv[2], argv[4:])
	}
	var ran *runAnswer
	for range execTries {
		r.id = newID()
		err = s.call(ctx, func(held *access) (err error) {
			ran, err = s.post(ctx, held, r)
			return err
		})
		// Every script of a file operation says something.
		if err != nil || !ran.lost() || !repeatable(argv) {
			break
		}
	}
	if err == nil && ran.lost() {
		err = errLost
	}
	if err != nil {
		if !errors.Is(err, workspace.ErrUnavailable) && !errors.Is(err, workspace.ErrInvalid) {
			s.abandon(r.id) //nolint:contextcheck // the caller's is over, or as good as
		}
		return nil, 0, nil, err
	}
	if ran.ExitCode == nil {
		return nil, 0, nil, fmt.Errorf("a file operation in the session came to %s: %w", ran.ended(), workspace.ErrTransient)
	}
	return []byte(*ran.Stdout), *ran.ExitCode, []byte(*ran.Stderr), nil
}

// execTries is how often an operation is made whose answer the service has lost, if it
// can be made again.
const execTries = 3

// repeatable reports whether a file operation comes to the same if it is made twice:
// what changes nothing, or sets something, or replaces a file in one step.
func repeatable(argv []string) bool {
	for i, arg := range argv {
		switch strings.TrimPrefix(arg, "r") {
		case "op_stat", "op_lstat", "op_readdir", "op_open", "op_realpath", "op_readlink", "op_probe",
			"op_mkdir", "op_chmod", "op_chtimes":
			return true
		case "op_put": // path, mode, exclusive, append
			return len(argv) > i+4 && argv[i+3] == "r" && argv[i+4] == "r"
		}
	}
	return false
}

// lost reports whether the output is missing of a script that says something. The
// service's engine client reads what comes together with the head of the engine's
// answer, and drops it: on a loaded machine, of one short run in some hundreds.
func (a *runAnswer) lost() bool {
	return a.ExitCode != nil && *a.ExitCode == 0 && *a.Stdout == "" && *a.Stderr == ""
}

var errLost = fmt.Errorf("the service has lost what the session said: %w", workspace.ErrTransient)

// abandon stops what may go on though nobody waits for it.
func (s *session) abandon(id string) {
	if id == "" {
		return
	}
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.alive), stopCallTimeout)
		defer cancel()
		if err := s.stopCall(ctx, id); err != nil {
			s.provider.logger.Debug("stopping what nobody waits for", "session", s.id, "error", err)
		}
	})
}
