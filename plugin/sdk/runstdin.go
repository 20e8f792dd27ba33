package sdk

import (
	"fmt"
	"io"
	"sync"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// stdinPiece is how much is written to a command at once: what it took is told
// after each.
const stdinPiece = 32 << 10

// inbox is a run's input between the stream and the command.
type inbox struct {
	mu     sync.Mutex
	chunks [][]byte
	next   int64 // offset that was received up to
	taken  int64 // offset that the command's pipe took
	ended  bool
	closed bool // the command reads no more
	wake   chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// put takes a chunk, without what a host sent before.
func (b *inbox) put(m *berthv1.RunStdin) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	offset, data := m.GetOffset(), m.GetData()
	switch {
	case offset < 0 || offset > b.next:
		return fmt.Errorf("stdin at offset %d, expected %d: %w", offset, b.next, workspace.ErrInvalid)
	case offset+int64(len(data)) <= b.next:
		return nil
	}
	data = data[b.next-offset:]
	if b.ended {
		return fmt.Errorf("stdin beyond its end at %d: %w", b.next, workspace.ErrInvalid)
	}
	if b.next+int64(len(data))-b.taken > wire.RunWindow && !b.closed {
		return fmt.Errorf("more than %d bytes of stdin under way: %w", wire.RunWindow, workspace.ErrInvalid)
	}
	b.next += int64(len(data))
	if !b.closed {
		b.chunks = append(b.chunks, data)
		b.signal()
	}
	return nil
}

// end takes the end of the input.
func (b *inbox) end(m *berthv1.RunStdinEnd) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.GetOffset() != b.next {
		return fmt.Errorf("stdin ends at %d, %d bytes were received: %w", m.GetOffset(), b.next, workspace.ErrInvalid)
	}
	b.ended = true
	b.signal()
	return nil
}

// complete reports whether the host need not send any more of it.
func (b *inbox) complete() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended || b.closed
}

// inboxState is what another stream is told of the input.
type inboxState struct {
	taken         int64
	ended, closed bool
}

func (b *inbox) state() inboxState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return inboxState{b.taken, b.ended, b.closed}
}

// close drops what is left.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.chunks = true, nil
	b.signal()
}

// get waits for the next chunk; nil is the end, or a command that is over.
func (b *inbox) get() []byte {
	for {
		b.mu.Lock()
		if len(b.chunks) > 0 {
			chunk := b.chunks[0]
			b.chunks = b.chunks[1:]
			b.mu.Unlock()
			return chunk
		}
		over := b.ended || b.closed
		b.mu.Unlock()
		if over {
			return nil
		}
		<-b.wake
	}
}

func (b *inbox) took(n int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken += int64(n)
	return b.taken
}

// feed writes the input to a command. It ends with the input or when the
// command reads no more.
func (r *run) feed(w io.Writer, closeStdin func()) {
	defer closeStdin()
	for {
		chunk := r.stdin.get()
		if chunk == nil {
			return
		}
		for len(chunk) > 0 {
			piece := chunk[:min(len(chunk), stdinPiece)]
			n, err := w.Write(piece)
			n = max(min(n, len(piece)), 0)
			taken := r.stdin.took(n)
			chunk = chunk[n:]
			if err == nil && n == 0 {
				err = io.ErrShortWrite
			}
			if err != nil {
				r.stdin.close()
				r.out.tookStdin(taken, true)
				return
			}
			r.out.tookStdin(taken, false)
		}
	}
}
