//go:build !windows

package transfer

import "syscall"

// openNonblock keeps the opening of a FIFO that took a file's place from
// waiting for a writer.
const openNonblock = syscall.O_NONBLOCK
