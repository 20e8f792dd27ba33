package budget

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// startOf is when a process was started, in ticks since the machine was.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	const afterName = 19 // fields between the process's name and its start
	_, rest, ok := strings.Cut(string(stat), ") ")
	if fields := strings.Fields(rest); ok && len(fields) > afterName {
		return fields[afterName], nil
	}
	return "", fmt.Errorf("/proc/%d/stat: not as expected", pid)
}

func random() uint32 { return rand.Uint32() } //nolint:gosec // a name, no secret

// Used is how much memory a process uses, its children not: what is in RAM and
// what was swapped out.
func Used(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	used, found := int64(0), false
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "VmRSS" && name != "VmSwap" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/status: %s: %w", pid, name, err)
		}
		used, found = used+kib<<10, true
	}
	if !found {
		return 0, errors.New("the process has ended") // a zombie has neither
	}
	return used, nil
}
