package admin

import (
	"fmt"
	"os"
)

// openExecuted opens the file that a process executes, also if another stands at its
// path by now.
func openExecuted(pid int) (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/exe", pid)) }
