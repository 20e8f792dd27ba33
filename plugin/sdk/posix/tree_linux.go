package posix

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

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
	pids, err := pids()
	if err != nil {
		return nil, err
	}
	procs := make([]proc, 0, len(pids))
	for _, pid := range pids {
		if p, err := readProc(pid); err == nil { // else it ended meanwhile
			procs = append(procs, p)
		}
	}
	slices.SortFunc(procs, func(a, b proc) int { return a.ppid - b.ppid })
	childrenOf := func(pid int) []proc {
		first := sort.Search(len(procs), func(i int) bool { return procs[i].ppid >= pid })
		after := sort.Search(len(procs), func(i int) bool { return procs[i].ppid > pid })
		return procs[first:after]
	}
	all := make([]proc, 0, len(procs))
	for _, p := range childrenOf(t.root) {
		if !t.skip[p.pid] {
			all = append(all, p)
		}
	}
	for i := 0; i < len(all); i++ {
		all = append(all, childrenOf(all[i].pid)...)
	}
	return all, nil
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
