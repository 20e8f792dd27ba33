package posix

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// farewell is how long a keeper without an owner waits for its supervisors to
// end, so that it leaves no zombie to a system whose init reaps none. Those that
// stay with background children are not waited for.
const farewell = 500 * time.Millisecond

// keeper is the parent and reaper of all supervisors. When one of them is
// killed, what it had below it falls to the keeper, which stops it. All its
// other children would be such orphans, so it needs not tell them apart.
type keeper struct {
	conn        *conn
	childs      chan os.Signal
	supervisors map[int]bool
	tree        tree
}

// keep is a keeper process.
func keep(c *conn) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 2
	}
	k := &keeper{conn: c, childs: make(chan os.Signal, 1), supervisors: make(map[int]bool)}
	k.tree = tree{root: os.Getpid(), skip: k.supervisors, kill: killProc}
	signal.Notify(k.childs, unix.SIGCHLD)
	messages := c.messages()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return k.orphaned()
			}
			switch m.kind {
			case kindSpawn:
				k.spawn(m.fds)
			case kindSweep:
				_ = k.conn.send(message{kind: kindSwept, text: k.sweepAfter(int(m.num))})
			}
			closeAll(m.fds)
		case <-k.childs:
			if k.reap() {
				k.sweep()
			}
		}
	}
}

// spawn starts a supervisor on the given socket, in a session of its own: no
// signal to the owner's group reaches it.
func (k *keeper) spawn(fds []int) {
	if len(fds) != 1 {
		_ = k.conn.send(message{kind: kindSpawned, num: -int64(unix.EINVAL)})
		return
	}
	pid, err := startHelper(supervisorRole, uintptr(fds[0]), []uintptr{0, 1, 2})
	if err != nil {
		_ = k.conn.send(message{kind: kindSpawned, num: -int64(errnoOf(err))})
		return
	}
	k.supervisors[pid] = true
	_ = k.conn.send(message{kind: kindSpawned, num: int64(pid)})
}

// startHelper starts this very binary again, whatever has become of its file.
func startHelper(role string, socket uintptr, std []uintptr) (int, error) {
	return syscall.ForkExec("/proc/self/exe", []string{helperName, role}, &syscall.ProcAttr{
		Dir: "/",
		// A supervisor hardly computes, and each further thread costs memory.
		Env:   []string{"GOMAXPROCS=1"},
		Files: append(std[:3:3], socket),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// reap waits for all that have ended and reports whether a supervisor did
// otherwise than by itself. One that was stopped, by its command perhaps, goes
// on: nobody would learn how the command ends.
func (k *keeper) reap() (killed bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return killed
		}
		if status.Stopped() {
			if k.supervisors[pid] {
				_ = unix.Kill(pid, unix.SIGCONT) // our child, not waited for yet
			}
			continue
		}
		if k.supervisors[pid] {
			delete(k.supervisors, pid)
			killed = killed || !status.Exited() || status.ExitStatus() != 0
		}
	}
}

// sweepAfter sweeps when a supervisor that was killed has ended: only then is what
// it leaves below the keeper.
func (k *keeper) sweepAfter(supervisor int) string {
	for timeout := time.After(killWait); k.supervisors[supervisor]; k.reap() {
		select {
		case <-k.childs:
		case <-timeout:
			return "unknown: the supervisor does not end"
		}
	}
	return k.sweep()
}

// sweep stops what killed supervisors have left, and tells what could not be.
func (k *keeper) sweep() string {
	for deadline := time.Now().Add(killWait); ; {
		refused := k.tree.destroy()
		k.reap()
		survivors := k.tree.survivors(refused)
		if survivors == "" || !time.Now().Before(deadline) {
			return survivors
		}
		select {
		case <-k.childs:
		case <-time.After(killRetry):
		}
	}
}

// orphaned ends this process when its owner has.
func (k *keeper) orphaned() int {
	timeout := time.After(farewell)
	for {
		if k.reap() {
			k.sweep()
		}
		if len(k.supervisors) == 0 {
			return 0
		}
		select {
		case <-k.childs:
		case <-timeout:
			return 0
		}
	}
}
