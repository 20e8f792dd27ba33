package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/berth-dev/berth/host/internal/budget"
	"github.com/berth-dev/berth/shared/wire"
)

// goPluginEnv are the variables by which go-plugin changes how a plugin serves.
// One that came in with the given environment would break the handshake: a
// stray PLUGIN_CLIENT_CERT makes the plugin ask for TLS.
var goPluginEnv = []string{
	"PLUGIN_CLIENT_CERT", "PLUGIN_MULTIPLEX_GRPC", "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT",
	"PLUGIN_PROTOCOL_VERSIONS", plugin.EnvUnixSocketDir, plugin.EnvUnixSocketGroup, wire.LifelineEnv,
	wire.BudgetEnv,
}

// procRunner is how go-plugin starts, watches and kills our process. It sees
// the handshake line on stdout, and nothing on stderr.
type procRunner struct {
	p   *Process
	run func() error
}

var _ runner.Runner = (*procRunner)(nil)

func (p *Process) runnerFunc(ctx context.Context, cfg Config) func(hclog.Logger, *exec.Cmd, string) (runner.Runner, error) {
	return func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
		env := environment(cfg.Env, cmd.Env)
		return &procRunner{p: p, run: func() error { return p.start(ctx, cfg, env) }}, nil
	}
}

// Start starts the process. Its end by a context is our own Start's.
func (r *procRunner) Start(context.Context) error { return r.run() }

// Wait waits for the end of the process, whoever holds its outputs.
func (r *procRunner) Wait(context.Context) error {
	<-r.p.exited
	return nil
}

// Kill is also called when go-plugin takes a stdout that closed for a failed
// start: then the process may be about to tell its own exit status.
func (r *procRunner) Kill(ctx context.Context) error {
	if _, err := r.p.hello(); errors.Is(err, errNoHello) {
		r.p.awaitOwnEnd(ctx)
	}
	r.p.Kill("it did not end when asked to")
	return nil
}

// Stdout has the handshake line alone.
func (r *procRunner) Stdout() io.ReadCloser { return r.p.handoff }

// Stderr has nothing: our own pump reads it.
func (r *procRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name is the binary's path.
func (r *procRunner) Name() string { return r.p.path }

// ID is the pid.
func (r *procRunner) ID() string { return strconv.Itoa(r.p.PID()) }

// Diagnose has nothing to add: our own errors say what happened.
func (r *procRunner) Diagnose(context.Context) string { return "" }

// PluginToHost accepts an address in the private folder alone: anything else
// could lead to a process that is not the plugin.
func (r *procRunner) PluginToHost(network, path string) (string, string, error) {
	if runtime.GOOS != "windows" && (network != "unix" || !r.p.folder.holds(path)) {
		return "", "", fmt.Errorf("%s listens on %s %s, not on a socket in the folder that it was given", r.p.path, network, quote(path))
	}
	r.p.addr.Store(&address{network: network, path: path})
	return network, path, nil
}

// HostToPlugin is for the broker, which is not used.
func (r *procRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// environment is the given one without the variables of the handshake, then
// those as they are added. Of two of one name a program sees the first.
func environment(given, added []string) []string {
	ours := slices.Clone(goPluginEnv)
	for _, kv := range added {
		ours = append(ours, variable(kv))
	}
	env := slices.DeleteFunc(slices.Clone(given), func(kv string) bool {
		return slices.ContainsFunc(ours, func(name string) bool { return strings.EqualFold(name, variable(kv)) })
	})
	return append(env, added...)
}

func variable(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}

// start starts the process and the goroutines that own it: one that waits for
// it, one that reads each of its outputs.
func (p *Process) start(ctx context.Context, cfg Config, env []string) error {
	p.attempted = true
	files, err := newStdio()
	if err != nil {
		return p.notSpawned(err)
	}
	started := make(chan error, 1)
	go p.own(ctx, cfg, env, files, started)
	if err := <-started; err != nil {
		return p.notSpawned(err)
	}
	return nil
}

// notSpawned keeps why there is no process, and that it has "ended".
func (p *Process) notSpawned(err error) error {
	p.mu.Lock()
	p.spawn = err
	p.mu.Unlock()
	close(p.exited)
	p.finish()
	return err
}

// own starts the process and stays with it until it is gone. The operating
// system thread is kept for as long, because Linux sends the parent death signal
// when the thread that made the child ends, not the process.
func (p *Process) own(ctx context.Context, cfg Config, env []string, files *stdio, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	room := budget.Open(cfg.Limits, cfg.Provider)
	proc, release, err := p.execute(ctx, cfg, room.Env(append(env, files.env()...)), files.child(), room)
	files.closeChild()
	if err != nil {
		p.vacate(room)
		files.close()
		started <- err
		return
	}
	p.mu.Lock()
	p.proc, p.pid, p.bounds = proc, proc.Pid, room.String()
	doomed := p.reason
	p.mu.Unlock()
	p.enter(room)
	p.chores.Go(room.Sweep)
	if doomed != "" {
		p.Kill(doomed)
	}
	p.readers.Go(func() { p.readStdout(&output{file: files.stdout}) })
	p.readers.Go(func() { p.readStderr(&output{file: files.stderr}) })
	started <- nil

	p.reap()
	release()
	p.leave(room)
	close(p.exited)
	p.vacate(room)
	files.drain()
	p.finish()
	files.close()
}

const (
	// busyTries and busyWait bound how long a binary that is "text file busy" is
	// tried again: someone is just writing it, or, in a program with many
	// threads, another child holds the descriptor between its fork and exec.
	busyTries = 50
	busyWait  = 20 * time.Millisecond
)

// execute starts the file that is to be executed; release lets go of that.
func (p *Process) execute(ctx context.Context, cfg Config, env []string, files []*os.File, room *budget.Room) (proc *os.Process, release func(), err error) {
	path, release := cfg.Path, func() {}
	if cfg.Open != nil {
		if path, release, err = cfg.Open(); err != nil {
			return nil, nil, &openError{err}
		}
	}
	p.mu.Lock()
	p.executed = path
	p.mu.Unlock()
	if proc, err = spawn(ctx, path, cfg.Dir, env, files, room); err != nil {
		release()
		return nil, nil, err
	}
	return proc, release, nil
}

func spawn(ctx context.Context, path, dir string, env []string, files []*os.File, room *budget.Room) (*os.Process, error) {
	if info, err := os.Stat(dir); dir != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("working directory %s of the plugin is not a folder", dir)
	}
	attr := &os.ProcAttr{Dir: dir, Env: env, Files: files, Sys: sysProcAttr()}
	for try := 0; ; try++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		proc, err := startIn(room, path, attr)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return proc, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(busyWait):
		}
	}
}

// readStdout hands the handshake line to go-plugin and then reads for ever, so
// that a plugin that prints never blocks.
func (p *Process) readStdout(stdout io.Reader) {
	r := bufio.NewReaderSize(stdout, maxHello)
	line, err := readHello(r, p.path, speaks())
	p.helloErr = err
	close(p.greeted)
	if err == nil {
		p.handoff.Send(line + "\n")
	} else {
		_ = p.handoff.Close()
	}
	sink := p.pump.stdout()
	copyAll(sink, r)
	sink.flush()
}

func (p *Process) readStderr(stderr io.Reader) {
	sink := p.pump.stderr()
	copyAll(sink, stderr)
	sink.flush()
}
