package process

import (
	"io"
	"os"
	"syscall"
	"time"
)

// passesFiles: os.StartProcess gives a child its standard handles alone here, so
// there is no lifeline.
const passesFiles = false

// sysProcAttr keeps Ctrl-C in the host's console from the plugin.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// killGroup does nothing: what a plugin started outlives it here.
func killGroup(int) {}

// wasKilled reports whether the process ended as [Process.Kill] ends it.
func wasKilled(state *os.ProcessState) bool { return state.ExitCode() == 1 }

// endReads gives the reader a moment and then closes the pipe, whose reads have
// no deadline here.
func endReads(file *os.File) {
	time.AfterFunc(outputWait, func() { _ = file.Close() })
}

func readNow(*os.File, []byte) (int, error) { return 0, io.EOF }
