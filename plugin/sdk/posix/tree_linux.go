package posix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// proc is one process as /proc/PID/stat tells it.
type proc struct {
	pid, ppid int
	state     byte
	name      string
	started   string // in clock ticks: with the pid it names one process only
}

// tree is all that descends from a process. Whatever detached itself is still
// there, since the process is its reaper.
type tree struct {
	root int
	// skip are children of root that with their descendants do not belong.
	skip map[int]bool
	// kill sends a signal to a process.
	kill func(p proc, sig unix.Signal) error
}

// list finds the descendants, parents first.
func (t tree) list() ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	children := make(map[int][]proc)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, err := readProc(pid); err == nil { // else it ended meanwhile
				children[p.ppid] = append(children[p.ppid], p)
			}
		}
	}
	var all []proc
	for _, p := range children[t.root] {
		if !t.skip[p.pid] {
			all = append(all, p)
		}
	}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].pid]...)
	}
	return all, nil
}

func readProc(pid int) (proc, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
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
	const ppid, started = 1, 19 // counted from the state
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= started {
		return proc{}, fmt.Errorf("unexpected stat %q", stat)
	}
	p := proc{name: string(stat[open+1 : end]), state: fields[0][0], started: fields[started]}
	var err error
	if p.pid, err = strconv.Atoi(string(bytes.TrimSpace(stat[:open]))); err != nil {
		return proc{}, err
	}
	p.ppid, err = strconv.Atoi(fields[ppid])
	return p, err
}

// killProc signals just the process that was found, not another one that has
// got its pid since.
func killProc(p proc, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.3
		return unix.Kill(p.pid, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, err := readProc(p.pid); err != nil || now.started != p.started {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// terminate asks every process to end. A stopped one could not hear it.
func (t tree) terminate() {
	all, _ := t.list()
	for _, p := range all {
		_ = t.kill(p, unix.SIGTERM)
		if p.state == 'T' {
			_ = t.kill(p, unix.SIGCONT)
		}
	}
}

// maxFreezes bounds the search for processes that were not yet stopped. Each
// round finds only what those of the round before made before they were.
const maxFreezes = 16

// destroy stops all processes, so that none makes new ones meanwhile, and then
// kills them. It tells why one could not be killed; call it until none is left.
// Zombies are no exception: a process whose first thread has ended is called one
// while its other threads run on.
func (t tree) destroy() map[int]error {
	frozen := make(map[int]string)
	for range maxFreezes {
		all, _ := t.list()
		fresh := false
		for _, p := range all {
			if frozen[p.pid] != p.started {
				frozen[p.pid] = p.started
				fresh = t.kill(p, unix.SIGSTOP) == nil || fresh
			}
		}
		if !fresh {
			break
		}
	}
	refused := make(map[int]error)
	all, _ := t.list()
	for _, p := range all {
		if err := t.kill(p, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			refused[p.pid] = err
		}
	}
	return refused
}

// survivors tells what is left and why, or "".
func (t tree) survivors(refused map[int]error) string {
	all, err := t.list()
	if err != nil {
		return "unknown: " + err.Error()
	}
	var left []string
	for _, p := range all {
		why := "did not end when killed (state " + string(p.state) + ")"
		if err := refused[p.pid]; err != nil {
			why = err.Error()
		}
		left = append(left, fmt.Sprintf("process %d (%s): %s", p.pid, p.name, why))
	}
	return strings.Join(left, ", ")
}
