package posix

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct on every architecture that Go has with
// SA_RESTORER or without: the handler is first, and zeros are the default.
type sigaction struct {
	handler uintptr
	rest    [4]uintptr
}

// lastSignal is that of the kernel's set.
const lastSignal = 64

// exchange reads and sets the action of a signal, either of which may be nil.
func exchange(sig int, set, get *sigaction) bool {
	const setSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), setSize, 0, 0)
	return errno == 0
}

// resetIgnored sets signals to their default that this process was started with
// as ignored, as by nohup.
func resetIgnored() {
	const sigIgn = 1
	for sig := 1; sig <= lastSignal; sig++ {
		var action sigaction
		if exchange(sig, nil, &action) && action.handler == sigIgn {
			exchange(sig, &sigaction{}, nil)
		}
	}
}
