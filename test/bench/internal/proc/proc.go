// Package proc reads what Linux tells of a process.
package proc

import (
	"fmt"
	"os"
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
