package posix

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// proc is one process as /proc/PID/stat tells it.
type proc struct {
	pid, ppid int
	state     byte
	name      string
	started   string // in clock ticks: with the pid it names one process only
}

// maxStat is more than a stat holds, whose numbers have 20 digits at most.
const maxStat = 2048

// readFile reads a small file, such as the kernel makes up. Unlike package os it
// prepares for no waiting, which can take a thread.
func readFile(path string, buf []byte) ([]byte, error) {
	fd, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, buf)
		if !errors.Is(err, unix.EINTR) {
			return buf[:max(n, 0)], err
		}
	}
}

func openFile(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func readProc(pid int) (proc, error) {
	var buf [maxStat]byte
	stat, err := readFile("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return proc{}, err
	}
	return parseStat(stat)
}

// parseStat reads "pid (name) state ppid …"; the name may hold anything.
func parseStat(stat []byte) (proc, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return proc{}, fmt.Errorf("unexpected stat %q", stat)
	}
	p := proc{name: string(stat[open+1 : end])}
	const state, ppid, started = 0, 1, 19
	i := 0
	for field := range bytes.FieldsSeq(stat[end+1:]) {
		switch i {
		case state:
			p.state = field[0]
		case ppid:
			var err error
			if p.ppid, err = strconv.Atoi(string(field)); err != nil {
				return proc{}, err
			}
		case started:
			p.started = string(field)
			var err error
			p.pid, err = strconv.Atoi(string(bytes.TrimSpace(stat[:open])))
			return p, err
		}
		i++
	}
	return proc{}, fmt.Errorf("unexpected stat %q", stat)
}

// pids lists all processes, in no order.
func pids() ([]int, error) {
	dir, err := openFile("/proc", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	var all []int
	var names []string
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return all, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				all = append(all, pid)
			}
		}
	}
}

// killProc signals just the process that was found, not another one that has
// got its pid since.
func killProc(p proc, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.3, or a filter of system calls that does not know it
		return unix.Kill(p.pid, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, err := readProc(p.pid); err != nil || now.started != p.started {
		return unix.ESRCH
	}
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if errors.Is(err, unix.ENOSYS) {
		return unix.Kill(p.pid, sig)
	}
	return err
}
