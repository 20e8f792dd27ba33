package sandboxd

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"strconv"
	"sync"
	"time"
)

const (
	// stdinWait is how long a command waits for its input to end: one that has by then
	// travels with the command.
	stdinWait = 50 * time.Millisecond
	// fullPause lies between two tries to give input to a command that does not read.
	fullPause = time.Second
)

// stdin is a command's input on its way: at most one piece is here, and two are in the
// container.
type stdin struct {
	most int

	mu     sync.Mutex
	change sync.Cond
	data   []byte
	closed bool // the caller's end
	over   bool // the command reads no more
}

func newStdin(most int) *stdin {
	s := &stdin{most: most}
	s.change.L = &s.mu
	return s
}

// Write takes input as there is room.
func (s *stdin) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		switch room := s.most - len(s.data); {
		case s.over:
			return n, io.ErrClosedPipe
		case s.closed:
			return n, fs.ErrClosed
		case room == 0:
			s.change.Wait()
		default:
			some := min(room, len(b))
			s.data = append(s.data, b[:some]...)
			n, b = n+some, b[some:]
			s.change.Broadcast()
		}
	}
	return n, nil
}

// Close is the end of the input.
func (s *stdin) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.over {
		return fs.ErrClosed
	}
	s.closed = true
	s.change.Broadcast()
	return nil
}

// shut is the end of the command's reading.
func (s *stdin) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.data = true, nil
	s.change.Broadcast()
}

// await waits until ready holds or ctx ends. The lock must be held.
func (s *stdin) await(ctx context.Context, ready func() bool) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.change.Broadcast()
	})
	defer stop()
	for !ready() && ctx.Err() == nil {
		s.change.Wait()
	}
}

// first is the whole input if it has ended within [stdinWait]. Else all of it is to be
// given piece by piece.
func (s *stdin) first(ctx context.Context) (data []byte, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, stdinWait)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.await(ctx, func() bool { return s.closed || len(s.data) == s.most })
	if !s.closed {
		return nil, false
	}
	data, s.data = s.data, nil
	return data, true
}

// next is the next piece, and whether it is the last.
func (s *stdin) next(ctx context.Context) (data []byte, last, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.await(ctx, func() bool { return s.over || s.closed || len(s.data) > 0 })
	if s.over || ctx.Err() != nil {
		return nil, false, false
	}
	data, s.data = bytes.Clone(s.data), s.data[:0]
	s.change.Broadcast()
	return data, s.closed, true
}

// feed gives the command its input, piece by piece, until that ends or is not read
// any more.
func (p *process) feed(ctx context.Context) {
	for segment := firstSegment; ; segment++ {
		data, last, ok := p.stdin.next(ctx)
		if !ok {
			return
		}
		end := ""
		if last {
			end = "1"
		}
		r := p.session.facts().control("input", p.where(), strconv.Itoa(segment), end)
		if len(data) > 0 {
			p.session.facts().pieces(r.env, data)
		}
		for {
			t, err := p.control(ctx, p.session.client.timeout, r)
			p.note(ctx, "giving a command its input", err)
			_, closed := t.says("closed")
			_, full := t.says("full")
			if err == nil && closed {
				p.stdin.shut()
				return
			}
			if err == nil && t.word == "on" && !full {
				break
			}
			// It was not taken: the command has not begun, has ended, or does not read.
			if sleep(ctx, fullPause) != nil {
				return
			}
		}
		if last {
			return
		}
	}
}
