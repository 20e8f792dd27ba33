package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// outputGrace is how long berth, told to end, waits for somebody to read what it
// still has to say: enough for a busy terminal, and less than makes people press
// Ctrl-C again.
const outputGrace = time.Second

// await does what may wait for somebody outside for as long as they like, such
// as reading a pipe or opening a FIFO. It leaves that alone, and fails with
// [context.Canceled], when it still goes on some grace after berth was told to
// end, which closes ended. What do holds must then not be used again.
func await[T any](ended <-chan struct{}, grace time.Duration, do func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := do()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ended:
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
		var none T
		return none, context.Canceled
	}
}

// openPipe opens a FIFO or a device for writing. A FIFO waits for its reader.
func (a *app) openPipe(path string) (*os.File, error) {
	return await(a.ended, 0, func() (*os.File, error) { return os.OpenFile(path, os.O_WRONLY, 0) })
}

// input is a file that berth itself reads, for as long as it is not told to end.
type input struct {
	file  *os.File
	ended <-chan struct{}
}

// Read must not be given the same buffer again after [context.Canceled].
func (in *input) Read(p []byte) (int, error) {
	return await(in.ended, 0, func() (int, error) { return in.file.Read(p) })
}

// stream is an output. It remembers what it ran into, and when berth is told to
// end it waits no longer for one that reads nothing.
type stream struct {
	file  *os.File
	ended <-chan struct{}
	// before, if set, makes room on the terminal for what is written.
	before func()

	mu  sync.Mutex
	err error // the first one
}

func (s *stream) Write(p []byte) (int, error) {
	if s.before != nil {
		s.before()
	}
	return s.write(p)
}

func (s *stream) write(p []byte) (int, error) {
	if errors.Is(s.failure(), context.Canceled) {
		return 0, context.Canceled // an earlier write still waits
	}
	// A write that is left alone goes on with its own copy.
	data := append([]byte(nil), p...)
	n, err := await(s.ended, outputGrace, func() (int, error) { return s.file.Write(data) })
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			s.err = err
		}
	}
	return n, err
}

// failure is the first error of a write.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// unread reports whether the reader has gone.
func (s *stream) unread() bool { return errors.Is(s.failure(), syscall.EPIPE) }

func (s *stream) isTerminal() bool { return term.IsTerminal(int(s.file.Fd())) }
