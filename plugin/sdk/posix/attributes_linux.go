package posix

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OOMScoreAdj is the oom_score_adj of commands: when memory runs out they go
// before whatever runs them.
const OOMScoreAdj = 500

// umask is that of commands.
const umask = 0o022

// detach makes this process independent of whatever started it: nothing is open
// but the null device and its socket, and no signal that is sent to many ends it.
func detach() {
	closeInherited()
	// Caught, not ignored: what is ignored stays so in commands.
	signal.Notify(make(chan os.Signal, 1))
	_ = unix.Chdir("/")
}

// closeInherited closes whatever an ancestor left open to be inherited, but not
// what the runtime itself has opened by now.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= socketFD {
			continue
		}
		if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && !strings.HasPrefix(target, "anon_inode:") {
			_ = unix.Close(fd)
		}
	}
}

// resetAttributes gives this process and thread what a command is to inherit,
// as far as the kernel lets this user (contract C9).
func resetAttributes() {
	unix.Umask(umask)
	for resource, limit := range defaultLimits() {
		resetLimit(resource, limit)
	}
	normal := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if unix.SchedSetAttr(0, normal, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
	}
	const ioprioWhoProcess = 1
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, 0)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
	resetIgnored()
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

// sigaction is the kernel's struct on every architecture that Go has with
// SA_RESTORER or without: the handler is first, and zeros are the default.
type sigaction struct {
	handler uintptr
	rest    [4]uintptr
}

// resetIgnored sets signals to their default that this process was started with
// as ignored, as by nohup.
func resetIgnored() {
	const sigIgn, setSize, lastSignal = 1, 8, 64
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var action sigaction
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), setSize, 0, 0)
		if errno == 0 && action.handler == sigIgn {
			action = sigaction{}
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, setSize, 0, 0)
		}
	}
}

// withOOMScore runs f, which makes a process, with the score that it inherits.
func withOOMScore(f func()) {
	const path = "/proc/self/oom_score_adj"
	own, err := os.ReadFile(path)
	if err != nil {
		f()
		return
	}
	_ = os.WriteFile(path, []byte(strconv.Itoa(OOMScoreAdj)), 0)
	f()
	_ = os.WriteFile(path, bytes.TrimSpace(own), 0)
}
