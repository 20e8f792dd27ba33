package posix

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// OOMScoreAdj is the oom_score_adj of commands: when memory runs out they go
// before whatever runs them. Where a score above it is this process's own and the
// kernel does not let it go below, commands have that one.
const OOMScoreAdj = 500

// umask is that of commands.
const umask = 0o022

// closeInherited closes whatever an ancestor left open to be inherited, but not
// what the runtime itself has opened by now.
func closeInherited() {
	dir, err := openFile("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	buf := make([]byte, 32<<10)
	var names []string
	for n, err := unix.ReadDirent(dir, buf); err == nil && n > 0; n, err = unix.ReadDirent(dir, buf) {
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= socketFD || fd == dir {
			continue
		}
		if target, err := os.Readlink("/proc/self/fd/" + name); err == nil && !strings.HasPrefix(target, "anon_inode:") {
			_ = unix.Close(fd)
		}
	}
}

// resetProcess gives this process what its children are to inherit, as far as
// the kernel lets this user (contract C9). What belongs to a thread was reset
// before it was started, by [resetThread].
func resetProcess() {
	_ = unix.Chdir("/")
	unix.Umask(umask)
	for resource, limit := range defaultLimits() {
		resetLimit(resource, limit)
	}
	resetIgnored()
}

// resetThread does the same for what each thread has of its own, and reports
// whether it has changed anything. The caller's goroutine is locked to it.
func resetThread() (changed bool) {
	sched, err := unix.SchedGetAttr(0, 0)
	if err != nil || sched.Policy != unix.SCHED_NORMAL || sched.Nice != 0 {
		changed = true
		normal := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
		if unix.SchedSetAttr(0, normal, 0) != nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
		}
	}
	const (
		ioprioWhoProcess = 1
		classShift       = 13
		bestEffort4      = 2<<classShift | 4 // what a niceness of 0 comes to
	)
	priority, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ioprioWhoProcess, 0, 0)
	if errno == 0 && priority>>classShift != 0 && priority != bestEffort4 {
		changed = true
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, 0)
	}
	var blocked unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, &blocked); err != nil || blocked != (unix.Sigset_t{}) {
		changed = true
	}
	return changed
}

// defaultLimits are those that the kernel gives to the first process, with the
// number of files that service managers allow.
func defaultLimits() map[int]syscall.Rlimit {
	const infinity = unix.RLIM_INFINITY & (1<<64 - 1)
	none := syscall.Rlimit{Cur: infinity, Max: infinity}
	limits := map[int]syscall.Rlimit{
		unix.RLIMIT_CPU: none, unix.RLIMIT_FSIZE: none, unix.RLIMIT_DATA: none, unix.RLIMIT_RSS: none,
		unix.RLIMIT_AS: none, unix.RLIMIT_LOCKS: none, unix.RLIMIT_RTTIME: none,
		unix.RLIMIT_STACK:    {Cur: 8 << 20, Max: infinity},
		unix.RLIMIT_CORE:     {Cur: 0, Max: infinity},
		unix.RLIMIT_NOFILE:   {Cur: 1024, Max: 524288},
		unix.RLIMIT_MEMLOCK:  {Cur: 8 << 20, Max: 8 << 20},
		unix.RLIMIT_MSGQUEUE: {Cur: 819200, Max: 819200},
		unix.RLIMIT_NICE:     {}, unix.RLIMIT_RTPRIO: {},
	}
	if text, err := os.ReadFile("/proc/sys/kernel/threads-max"); err == nil {
		if threads, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil {
			limits[unix.RLIMIT_NPROC] = syscall.Rlimit{Cur: threads / 2, Max: threads / 2}
			limits[unix.RLIMIT_SIGPENDING] = syscall.Rlimit{Cur: threads / 2, Max: threads / 2}
		}
	}
	return limits
}

// resetLimit sets a limit; without privileges, within the hard limit that is.
func resetLimit(resource int, limit syscall.Rlimit) {
	if syscall.Setrlimit(resource, &limit) == nil {
		return
	}
	var now syscall.Rlimit
	if syscall.Getrlimit(resource, &now) != nil {
		return
	}
	limit.Max = min(limit.Max, now.Max)
	limit.Cur = min(limit.Cur, limit.Max)
	_ = syscall.Setrlimit(resource, &limit)
}

// oomScore is this process's score, by which the kernel chooses whom to kill when
// memory runs out.
type oomScore struct {
	fd  int // -1 where there is none
	own []byte
}

// newOOMScore looks at the score and lowers one that is above normal, where that
// is allowed.
func newOOMScore() oomScore {
	fd, err := openFile("/proc/self/oom_score_adj", unix.O_RDWR)
	if err != nil {
		return oomScore{fd: -1}
	}
	var buf [16]byte
	n, _ := unix.Read(fd, buf[:])
	o := oomScore{fd: fd, own: bytes.TrimSpace(buf[:max(n, 0)])}
	if score, err := strconv.Atoi(string(o.own)); err == nil && score > 0 && o.set([]byte("0")) {
		o.own = []byte("0")
	}
	return o
}

func (o oomScore) close() {
	if o.fd >= 0 {
		_ = unix.Close(o.fd)
	}
}

func (o oomScore) set(score []byte) bool {
	n, err := unix.Pwrite(o.fd, score, 0)
	return err == nil && n == len(score)
}

// raised runs f, which makes a process, with the score that this is to have.
func (o oomScore) raised(f func()) {
	if o.fd < 0 {
		f()
		return
	}
	if score, err := strconv.Atoi(string(o.own)); err == nil && score < OOMScoreAdj {
		o.set([]byte(strconv.Itoa(OOMScoreAdj)))
		defer o.set(o.own)
	}
	f()
}
