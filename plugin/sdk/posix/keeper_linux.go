package posix

import (
	"errors"
	"os"
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
	owner       *port
	children    *children
	supervisors map[int]bool
	none        bool // there was no child at all when last looked
	tree        tree
}

// keep is a keeper process.
func keep(owner *port) int {
	closeInherited()
	resetProcess()
	catchSignals()
	newOOMScore().close() // what is above normal is lowered, here and in supervisors
	err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	k := &keeper{owner: owner, supervisors: make(map[int]bool), none: true}
	k.tree = tree{root: os.Getpid(), skip: k.supervisors, kill: killProc}
	if err == nil {
		k.children, err = newChildren(unix.WEXITED | unix.WSTOPPED)
	}
	if err == nil {
		err = makeThreads(helperThreads)
	}
	if err != nil {
		return 2
	}
	owner.send(message{kind: kindReady})
	for {
		k.wait(time.Time{})
		if k.reap() {
			k.sweep()
		}
		for {
			m, complete, err := owner.receive()
			if err != nil {
				return k.orphaned()
			}
			if !complete {
				break
			}
			switch m.kind {
			case kindSpawn:
				k.spawn(m.fds)
			case kindSweep:
				owner.send(message{kind: kindSwept, text: k.sweepAfter(int(m.num))})
			}
			closeAll(m.fds)
		}
	}
}

// wait waits for the owner and for children, until a time unless that is zero.
func (k *keeper) wait(until time.Time) {
	if !k.none {
		k.children.start()
	}
	list := []unix.PollFd{pollIn(k.owner.fd), pollIn(k.children.fd)}
	if pollUntil(list, until); list[1].Revents != 0 {
		k.children.changed()
	}
}

// waitChild does so for children alone.
func (k *keeper) waitChild(until time.Time) {
	owner := k.owner.fd
	k.owner.fd = -1
	k.wait(until)
	k.owner.fd = owner
}

// spawn starts a supervisor on the given socket, in a session of its own: no
// signal to the owner's group reaches it.
func (k *keeper) spawn(fds []int) {
	if len(fds) != 1 {
		k.owner.send(message{kind: kindSpawned, num: -int64(unix.EINVAL)})
		return
	}
	pid, err := startHelper(supervisorRole, uintptr(fds[0]), []uintptr{0, 1, 2}, oneProcessor, noCollector)
	if err != nil {
		k.owner.send(message{kind: kindSpawned, num: -int64(errnoOf(err))})
		return
	}
	k.supervisors[pid], k.none = true, false
	k.owner.send(message{kind: kindSpawned, num: int64(pid)})
}

// Variables of helpers' environments, which the Go runtime reads. Helpers hardly
// compute, and each further thread costs memory and a place below the limit of
// processes, as does what collects garbage; see [maxGarbage].
const (
	oneProcessor = "GOMAXPROCS=1"
	noCollector  = "GOGC=off"
)

// startHelper starts this very binary again, whatever has become of its file.
func startHelper(role string, socket uintptr, std []uintptr, env ...string) (int, error) {
	return syscall.ForkExec("/proc/self/exe", []string{helperName, role}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
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
			k.none = errors.Is(err, unix.ECHILD)
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
	for deadline := time.Now().Add(killWait); k.supervisors[supervisor]; k.reap() {
		if !time.Now().Before(deadline) {
			return "unknown: the supervisor does not end"
		}
		k.waitChild(deadline)
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
		k.waitChild(time.Now().Add(killRetry))
	}
}

// orphaned ends this process when its owner has.
func (k *keeper) orphaned() int {
	for deadline := time.Now().Add(farewell); ; k.waitChild(deadline) {
		if k.reap() {
			k.sweep()
		}
		if len(k.supervisors) == 0 || !time.Now().Before(deadline) {
			return 0
		}
	}
}
