package process

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// StartError is a plugin that could not be started. errors.As finds the
// [*workspace.PluginError] in it, errors.Is its cause.
type StartError struct {
	*workspace.PluginError
	Cause error // may be nil
}

// Unwrap returns the plugin error and the cause.
func (e *StartError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.PluginError}
	}
	return []error{e.PluginError, e.Cause}
}

// StartFailed is a failure before there was a process.
func StartFailed(provider string, cause error) *StartError {
	return startError(provider, cause.Error(), cause)
}

func startError(provider, reason string, cause error) *StartError {
	return &StartError{
		PluginError: &workspace.PluginError{Provider: provider, Op: "start", Reason: reason},
		Cause:       cause,
	}
}

// StartError is a failure while the process was being set up after its start,
// with what is known of its end and its last lines.
func (p *Process) StartError(reason string, cause error) *StartError {
	err := startError(p.provider, reason, cause)
	err.PID = p.PID()
	err.ExitStatus = p.ExitStatus()
	err.Stderr = p.Stderr()
	return err
}

var (
	errStartTimeout = errors.New("start timeout")
	errNoServer     = errors.New("no gRPC on its socket")
)

// openError is why there was no file to execute.
type openError struct{ error }

// Unwrap returns the reason.
func (e *openError) Unwrap() error { return e.error }

// hello returns whether the first line was read, and what was wrong with it.
func (p *Process) hello() (read bool, err error) {
	select {
	case <-p.greeted:
		return true, p.helloErr
	default:
		return false, nil
	}
}

// waitingFor tells what a start has not got yet.
func (p *Process) waitingFor() string {
	if read, _ := p.hello(); read {
		return "an answer on the plugin's socket"
	}
	return "the handshake line on the plugin's stdout"
}

// awaitOwnEnd gives a process that closed its stdout or its socket a moment to
// end by itself.
func (p *Process) awaitOwnEnd(ctx context.Context) {
	if _, hello := p.hello(); hello != nil && !errors.Is(hello, errNoHello) {
		return // it lives, and says something else
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
	case <-time.After(ownEndWait):
	}
}

// failedStart explains why a start failed. The process was killed by now, unless
// it had ended by itself; waited is what the start waited for before that.
func (p *Process) failedStart(ctx context.Context, cfg Config, waited string, err error) error {
	select {
	case <-p.finished:
	case <-time.After(outputWait):
	}
	ownEnd := p.Reason() == ""
	p.mu.Lock()
	spawnErr, executed := p.spawn, p.executed
	p.mu.Unlock()
	_, hello := p.hello()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("provider %s: start of plugin %s given up, it waited for %s: %w", cfg.Provider, cfg.Path, waited, ctx.Err())
	case errors.As(spawnErr, new(*openError)):
		return p.StartError(spawnErr.Error(), spawnErr)
	case spawnErr != nil:
		return p.StartError(spawnReason(cmp.Or(executed, cfg.Path), spawnErr), spawnErr)
	case errors.Is(err, errStartTimeout):
		return p.StartError(fmt.Sprintf("%s was not ready within %v; it waited for %s", cfg.Path, cfg.StartTimeout, waited), context.DeadlineExceeded)
	case p.OutOfMemory() != "":
		return p.StartError(p.path+": the kernel ended it: "+p.OutOfMemory(), nil)
	case errors.Is(hello, errNoHello) && ownEnd:
		return p.StartError(p.endedEarly(), nil)
	case errors.Is(hello, errNoHello):
		return p.StartError(cfg.Path+" closed its stdout without a handshake: it is no Berth plugin", nil)
	case hello != nil:
		return p.StartError(hello.Error(), nil)
	case ownEnd:
		return p.StartError(cfg.Path+" ended right after its handshake", nil)
	case errors.Is(err, errNoServer):
		return p.StartError(fmt.Sprintf("%s does not serve gRPC on the socket of its handshake: %s", cfg.Path, err), nil)
	default:
		return p.StartError(fmt.Sprintf("%s: %s", cfg.Path, err), err)
	}
}

func (p *Process) endedEarly() string {
	p.mu.Lock()
	state := p.state
	p.mu.Unlock()
	if state != nil && state.Success() {
		return p.path + " ended at once without a handshake: it is no Berth plugin"
	}
	for _, line := range p.Stderr() {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return fmt.Sprintf("%s crashed before its handshake: %s", p.path, line)
		}
	}
	return p.path + " ended before its handshake"
}

// spawnReason explains what the operating system said to a start.
func spawnReason(path string, err error) string {
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return path + " does not exist"
	case errors.Is(err, fs.ErrNotExist):
		return path + " exists, but the interpreter or dynamic loader that it asks for does not"
	case errors.Is(err, fs.ErrPermission) && statErr == nil:
		return fmt.Sprintf("%s is not executable by this user (mode %04o, or its file system is mounted noexec)", path, info.Mode().Perm())
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Sprintf("%s is not a program for %s/%s%s", path, runtime.GOOS, runtime.GOARCH, builtFor(path))
	case errors.Is(err, syscall.ETXTBSY):
		return path + " is open for writing: it is being replaced"
	}
	return fmt.Sprintf("%s: %v", path, err)
}

// builtFor names the machine that an ELF file is for.
func builtFor(path string) string {
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	return ": it was built for " + strings.ToLower(strings.TrimPrefix(file.Machine.String(), "EM_"))
}
