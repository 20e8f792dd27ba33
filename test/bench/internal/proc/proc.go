// Package proc reads what Linux tells of a process.
package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory reads a size from /proc/PID/status, in bytes: VmHWM is the peak of what
// is resident, VmRSS what is resident now, RssAnon what of that is its own. It is
// zero for a process that is not there.
func Memory(pid int, key string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Child is a child of a process that runs a program of that name, zero if it has none.
func Child(pid int, program string) int {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		data, err := os.ReadFile(filepath.Join(process, "status"))
		if err != nil || !strings.Contains(string(data), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		path, _, _ := strings.Cut(string(command), "\x00")
		if filepath.Base(path) == program {
			child, _ := strconv.Atoi(filepath.Base(process))
			return child
		}
	}
	return 0
}

// Stopped says whether a signal has stopped all threads of a process.
func Stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/status", pid))
	for _, thread := range threads {
		data, err := os.ReadFile(thread)
		if err == nil && !strings.Contains(string(data), "\nState:\tT ") {
			return false
		}
	}
	return len(threads) > 0
}

// LoadAverage is how many processes want to run, as Linux counts them over a minute.
func LoadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}
