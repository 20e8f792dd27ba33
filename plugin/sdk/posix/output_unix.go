//go:build unix

package posix

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// output is one output of a command. It ends at the end of the pipe or, when
// the command has ended, with what the pipe held then (contract C8).
type output struct {
	pipe *os.File
	raw  syscall.RawConn

	mu    sync.Mutex // held while the pipe is read, so that nothing is counted twice
	ended bool
	rest  []byte // what was in the pipe at the end and is not read yet
}

// pipe makes a pipe of which one end, ours, never blocks a thread.
func pipe(ours int) (our *os.File, theirs int, err error) {
	fds := make([]int, 2)
	if err := pipeCloexec(fds); err != nil {
		return nil, -1, err
	}
	if err := unix.SetNonblock(fds[ours], true); err != nil {
		closeAll(fds)
		return nil, -1, err
	}
	return os.NewFile(uintptr(fds[ours]), "pipe"), fds[1-ours], nil
}

// Indexes of a pipe's ends.
const (
	readEnd  = 0
	writeEnd = 1
)

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func newOutput() (o *output, theirs int, err error) {
	our, theirs, err := pipe(readEnd)
	if err != nil {
		return nil, -1, err
	}
	raw, err := our.SyscallConn()
	if err != nil {
		closeAll([]int{theirs})
		return nil, -1, errors.Join(err, our.Close())
	}
	return &output{pipe: our, raw: raw}, theirs, nil
}

// Read waits for output. It never holds up the end of the command.
func (o *output) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		var readErr error
		waitErr := o.raw.Read(func(fd uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.ended {
				return true
			}
			for {
				n, readErr = unix.Read(int(fd), p)
				if !errors.Is(readErr, unix.EINTR) {
					break
				}
			}
			if readErr == nil && n == 0 {
				o.ended = true
			}
			return !errors.Is(readErr, unix.EAGAIN)
		})
		if n > 0 {
			return n, nil
		}
		o.mu.Lock()
		if o.ended { // also when waiting was cut short: the pipe is closed then
			n = copy(p, o.rest)
			o.rest = o.rest[n:]
			o.mu.Unlock()
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		o.mu.Unlock()
		if err := errors.Join(waitErr, readErr); err != nil {
			return 0, err
		}
	}
}

// end keeps what the pipe holds now, gives up the pipe, and reports whether
// somebody still holds its other end. No reader is waited for.
func (o *output) end() (held bool) {
	held = o.take()
	// Not under the lock: it waits for a reader, who waits for that. A reader
	// that waits for output is woken.
	_ = o.pipe.Close()
	return held
}

func (o *output) take() (held bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	o.ended = true
	_ = o.raw.Control(func(fd uintptr) { o.rest, held = takePipe(int(fd)) })
	return held
}

// takePipe reads what a pipe holds, and no more: who writes on for ever would
// never be done.
func takePipe(fd int) (data []byte, held bool) {
	size, err := pipeHolds(fd)
	if err != nil {
		return nil, true
	}
	data = make([]byte, size)
	for n := 0; ; {
		got, err := unix.Read(fd, data[n:min(n+1<<20, size)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return data[:n], true
		case got == 0 && n < size:
			return data[:n], false
		}
		if n += got; n == size {
			return data, pipeHeld(fd)
		}
	}
}

// pipeHeld reports whether anybody can still write to a pipe.
func pipeHeld(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	n, err := pollNow(poll)
	return err != nil || n == 0 || poll[0].Revents&unix.POLLIN != 0
}

// pollNow tells what there is without waiting: a signal may interrupt that too.
func pollNow(list []unix.PollFd) (n int, err error) {
	for {
		if n, err = unix.Poll(list, 0); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// discard gives up whatever has not been read.
func (o *output) discard() {
	o.end()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rest = nil
}
