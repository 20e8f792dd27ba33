package boot

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk/posix"
)

const (
	// endGrace is how long processes have to end by themselves. It is half of
	// what Docker gives the whole container by default.
	endGrace = 5 * time.Second
	// endPoll is between two looks whether any is left: of those that were
	// started from outside the container, nobody tells their end.
	endPoll = 20 * time.Millisecond
	// killWait is how long after SIGKILL they may take to be gone. Then this
	// process ends, and the kernel ends the rest.
	killWait = time.Second
	// firstPause and longestPause are between the death of the serving process
	// and the next one's start. They double, until one has lived for settled.
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
	settled      = 10 * time.Second
	// spareThreads are for the calls of the kernel that this process makes: one
	// that starts a process, one that reads /proc, and one that runs Go code
	// meanwhile.
	spareThreads = 3
)

// Config says what to start.
type Config struct {
	// Args are those of this binary that serve.
	Args []string
	// Env is the environment of the serving process.
	Env []string
	// Hopeless are exit statuses after which the first start is not tried again:
	// the guest was told to do what it cannot.
	Hopeless func(status int) bool
	Logger   hclog.Logger
}

// boot is all of the state, which belongs to the goroutine of Run.
type boot struct {
	config  Config
	first   bool           // this is the first process of its PID namespace
	ended   chan os.Signal // a child has
	end     chan os.Signal // end everything
	serving int            // the pid, or 0
	started time.Time
	starts  int
	pause   time.Duration
	again   *time.Timer
}

// Run starts the serving process and returns the exit status of this one, when it
// was told to end or the serving process could not even begin.
func Run(config Config) (status int) {
	runtime.GOMAXPROCS(1)
	posix.MakeThreads(spareThreads)
	b := &boot{config: config, first: os.Getpid() == 1, pause: firstPause, again: time.NewTimer(0)}
	if !b.first {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			config.Logger.Error("becoming the reaper of all that is left behind", "error", err)
			return 1
		}
	}
	b.catchSignals()
	for {
		select {
		case <-b.end:
			b.endAll()
			return 0
		case <-b.ended:
			if status, hopeless := b.reap(); hopeless {
				return status
			}
		case <-b.again.C:
			b.start()
		}
	}
}

// powerOff is what some images name as their stop signal, after systemd's.
const powerOff = unix.Signal(37)

// catchSignals has signals on channels of their own: one that finds its channel
// full is lost, so none may share it with others that matter. All that the Go
// runtime would die of are caught, as the first process too, where the kernel
// itself protects it: a command can send any of them.
func (b *boot) catchSignals() {
	b.end = make(chan os.Signal, 1)
	signal.Notify(b.end, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGPWR, powerOff)
	b.ended = make(chan os.Signal, 1)
	signal.Notify(b.ended, unix.SIGCHLD)
	var rest []os.Signal
	for n := unix.Signal(1); n < 65; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGURG: // the last one is the runtime's own
		default:
			rest = append(rest, n)
		}
	}
	signal.Notify(make(chan os.Signal, 1), rest...)
}

// start starts the serving process, or tries again later.
func (b *boot) start() {
	pid, err := syscall.ForkExec("/proc/self/exe", b.config.Args, &syscall.ProcAttr{
		Dir: "/", Env: b.config.Env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	b.starts++
	b.started = time.Now()
	if err != nil {
		b.config.Logger.Error("starting the guest", "error", err)
		b.later()
		return
	}
	b.serving = pid
}

// later sets the time of the next start.
func (b *boot) later() {
	if time.Since(b.started) >= settled {
		b.pause = firstPause
	}
	b.again.Reset(b.pause)
	b.pause = min(2*b.pause, longestPause)
}

// reap waits for all that have ended. It tells the status of a serving process
// that never had a chance.
func (b *boot) reap() (status int, hopeless bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid == 0:
			return 0, false
		case ws.Stopped():
			if pid == b.serving { // by a command; nobody could go on
				_ = unix.Kill(pid, unix.SIGCONT)
			}
		case pid == b.serving:
			b.serving = 0
			if b.starts == 1 && ws.Exited() && b.config.Hopeless(ws.ExitStatus()) {
				return ws.ExitStatus(), true
			}
			b.config.Logger.Warn("the guest ended, and is started again", "how", how(ws))
			b.later()
		}
	}
}

func how(ws unix.WaitStatus) string {
	if ws.Signaled() {
		return "killed by signal " + unix.SignalName(ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

// endAll ends all processes, and returns when none is left.
func (b *boot) endAll() {
	b.again.Stop()
	b.send(unix.SIGTERM)
	if b.gone(endGrace) {
		return
	}
	b.send(unix.SIGKILL)
	b.gone(killWait)
}

// gone waits until no process is left.
func (b *boot) gone(most time.Duration) bool {
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	for deadline := time.Now().Add(most); ; {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if !b.first && errors.Is(err, unix.ECHILD) {
				return true
			}
			if err != nil || pid == 0 {
				break
			}
		}
		// Those that were started from outside are no children of this one.
		if b.first && errors.Is(unix.Kill(-1, 0), unix.ESRCH) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-tick.C:
		case <-b.ended:
		}
	}
}

// send sends to every process of the container. Where this is not the first one,
// there may be others that are none of its own: then to all that descend from it.
func (b *boot) send(sig unix.Signal) {
	if b.first {
		_ = unix.Kill(-1, sig)
		return
	}
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, sig)
	}
}
