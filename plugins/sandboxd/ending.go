package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// finishTimeout bounds the clean-up after a command whose request broke.
const finishTimeout = 10 * time.Second

// conclude is what the answer means.
func (p *process) conclude(held *access, ran *runAnswer, err error) (int, error) {
	if err != nil {
		if errors.Is(err, workspace.ErrUnavailable) || errors.Is(err, workspace.ErrInvalid) {
			return 0, err
		}
		// Whether it runs is not known: it does not any more, unless it had ended.
		if end := p.finish(); end.known() && p.ctx.Err() == nil {
			return p.outcome(end)
		}
		if p.ctx.Err() == nil {
			err = fmt.Errorf("its end is not known, and it was stopped: %w", err)
		}
		return 0, err
	}
	end := ending{stderr: *ran.Stderr}
	if end.told, err = p.session.facts().parse(*ran.Stdout); err == nil {
		err = p.take(end.told)
	}
	switch {
	case err != nil:
		p.finish()
		return 0, err
	case ran.TimedOut:
		end = p.finish()
		return 0, &workspace.TimeoutError{Timeout: held.ceiling(), Ceiling: true, Survivors: end.left()}
	case end.known():
		p.session.arrived(p.name)
		return p.outcome(end)
	}
	if _, ok := end.says("room"); ok {
		return 0, fmt.Errorf("it was not started: %s in the session's container has no room for its output: %w", path.Dir(p.where()), syscall.ENOSPC)
	}
	if _, ok := end.says("folder"); ok {
		if p.wasStopped() {
			return 0, errors.New("it was stopped before it began")
		}
		return 0, fmt.Errorf("making a folder for the command's output in the container: %s", short(end.stderr))
	}
	if ran.ExitCode != nil && (*ran.ExitCode == workspace.ExitNotFound || *ran.ExitCode == workspace.ExitNotExecutable) {
		return 0, fmt.Errorf("the session has no sh: %s: %w", short(*ran.Stderr), errors.ErrUnsupported)
	}
	err = ended(ran)
	end = p.finish()
	if errors.Is(err, errLost) && end.known() {
		p.session.provider.logger.Debug("asked again for the result of a command", "session", p.session.id, "run", p.cmd.RunID)
		return p.outcome(end)
	}
	return 0, err
}

// ending is what a run has come to.
type ending struct {
	told
	stderr string // of the script that tells it
}

// known reports whether the command has ended by itself, or could not begin.
func (e ending) known() bool {
	if _, ok := e.says("dir"); ok {
		return true
	}
	_, err := strconv.Atoi(e.word)
	return err == nil
}

// outcome is what Wait returns of an ending that is known.
func (p *process) outcome(e ending) (int, error) {
	if rest, ok := e.says("dir"); ok {
		return 0, &fs.PathError{Op: "chdir", Path: p.cmd.Dir, Err: dirError(rest)}
	}
	code, err := strconv.Atoi(e.word)
	if err != nil {
		return 0, fmt.Errorf("%w (%w)", errScript, err)
	}
	if _, ok := e.says("unwatched"); ok {
		return 0, errUnwatched
	}
	if _, ok := e.says("lost"); ok {
		const doing = "keeping the command's output in the container, which ended with exit code"
		if e.stderr == "" { // not even the reason could be kept
			return 0, fmt.Errorf("%s %d: %w", doing, code, syscall.ENOSPC)
		}
		return 0, fmt.Errorf("%s %d: %s", doing, code, short(e.stderr))
	}
	if p.wasEarly() {
		p.finish() // the stop found nothing, and left its word
	}
	return code, nil
}

// ended is a script of ours that has not said its last word.
func ended(ran *runAnswer) error {
	text := strings.ToLower(*ran.Stderr)
	if strings.Contains(text, "cannot fork") || strings.Contains(text, "can't fork") {
		return fmt.Errorf("the session's limit of processes is reached: %s: %w", short(*ran.Stderr), workspace.ErrTransient)
	}
	if ran.lost() {
		return errLost
	}
	return fmt.Errorf("a script of ours in the session was ended: %s: %s", ran.ended(), short(*ran.Stderr))
}

// dirError is why a command cannot start in its directory, in the words of ls.
func dirError(text string) error {
	lower := strings.ToLower(text)
	for _, known := range []struct {
		text string
		err  error
	}{
		{"not a directory", syscall.ENOTDIR},
		{"no such file or directory", fs.ErrNotExist},
		{"too many levels of symbolic links", syscall.ELOOP},
		{"symbolic link loop", syscall.ELOOP},
		{"file name too long", syscall.ENAMETOOLONG},
	} {
		if strings.HasSuffix(lower, known.text) {
			return known.err
		}
	}
	return fs.ErrPermission // ls may look at it, and nobody may enter
}

// finish brings the result of a command whose request did not tell it, if it has ended
// by itself; else it stops what is left of it, brings its last output, and removes its
// folder. What it cannot do, the container's own watch does ten seconds later.
func (p *process) finish() ending {
	ctx := context.WithoutCancel(p.ctx)
	args := append([]string{"finish", p.where(), p.name}, p.positions()...)
	end, err := p.ask(ctx, finishTimeout, p.session.facts().control(args...), tries)
	if err == nil {
		err = p.take(end.told)
	}
	if err != nil && !errors.Is(err, workspace.ErrUnavailable) {
		p.note(ctx, "cleaning up after a command", err)
		p.session.abandon(p.sent())
		end.word = "" // what it tells is not whole
	}
	if end.known() {
		p.session.arrived(p.name)
	}
	return end
}
