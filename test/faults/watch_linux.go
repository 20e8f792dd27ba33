package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// freezeWait is for a signal to reach every thread, on a machine with no time to spare.
const freezeWait = 60 * time.Second

// Freeze stops a process until it gets SIGCONT. The signal takes a moment to reach all
// of its threads.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(freezeWait); !frozen(t, pid); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d has not stopped after %v", pid, freezeWait)
		}
	}
}

func frozen(t testing.TB, pid int) bool {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		t.Fatal(stats, err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if _, rest, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

// Running lists the processes of the binary at path.
func Running(t testing.TB, path string) (pids []int) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if exe, err := os.Readlink(link); err != nil || exe != path {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
