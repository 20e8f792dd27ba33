package host

import (
	"errors"
	"fmt"
	"io"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// input is a run's stdin, guarded by the run's mutex. At most a window of it is
// under way beyond what the command's pipe has taken, and all of that is kept, to
// be sent again should the stream break.
type input struct {
	read, taken int64
	chunks      []*berthv1.RunStdin // not taken, oldest first
	sent        int                 // how many of chunks were sent
	ended       bool                // the caller's reader is at its end
	endSent     bool
	closed      bool // the command reads no more
}

// accept takes the plugin's word for how far the command's pipe has got.
func (in *input) accept(taken *berthv1.RunStdinTaken) error {
	if offset := taken.GetOffset(); offset < in.taken || offset > in.read {
		return garbage("the plugin says that %d bytes of stdin were taken, of %d sent and %d taken before", offset, in.read, in.taken)
	}
	in.advance(taken.GetOffset())
	if taken.GetClosed() {
		in.close()
	}
	return nil
}

// advance lets go of what was taken.
func (in *input) advance(offset int64) {
	in.taken = offset
	for len(in.chunks) > 0 && in.chunks[0].GetOffset()+int64(len(in.chunks[0].GetData())) <= offset {
		in.chunks[0] = nil
		in.chunks = in.chunks[1:]
		in.sent = max(in.sent-1, 0)
	}
}

// close drops what the command will not read.
func (in *input) close() { in.closed, in.chunks, in.sent = true, nil, 0 }

// rewind makes what another stream's plugin has not taken to be sent again.
func (in *input) rewind(attached *berthv1.RunAttached) error {
	offset := attached.GetStdinTaken()
	if offset < in.taken || offset > in.read {
		return garbage("the plugin says that %d bytes of stdin were taken, of %d sent and %d taken before", offset, in.read, in.taken)
	}
	in.advance(offset)
	in.sent, in.endSent = 0, false
	if len(in.chunks) > 0 && in.chunks[0].GetOffset() < offset {
		first := in.chunks[0]
		in.chunks[0] = &berthv1.RunStdin{Offset: offset, Data: first.GetData()[offset-first.GetOffset():]}
	}
	if attached.GetStdinEnded() {
		in.close()
	}
	return nil
}

// next is what of the input is to be sent, or nil.
func (in *input) next() *berthv1.RunRequest {
	switch {
	case in.closed:
		return nil
	case in.sent < len(in.chunks):
		chunk := in.chunks[in.sent]
		in.sent++
		return &berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: chunk}}
	case in.ended && !in.endSent:
		in.endSent = true
		return &berthv1.RunRequest{Message: &berthv1.RunRequest_StdinEnd{StdinEnd: &berthv1.RunStdinEnd{Offset: in.read}}}
	}
	return nil
}

// pump reads the caller's input, no further ahead than the window.
func (r *run) pump() {
	buf := make([]byte, wire.ChunkSize)
	for {
		room, ok := r.stdinRoom()
		if !ok {
			return
		}
		n, err := r.cmd.Stdin.Read(buf[:min(room, len(buf))])
		r.mu.Lock()
		if n > 0 {
			r.in.chunks = append(r.in.chunks, &berthv1.RunStdin{Offset: r.in.read, Data: append([]byte(nil), buf[:n]...)})
			r.in.read += int64(n)
		}
		r.in.ended = errors.Is(err, io.EOF)
		r.changed.Broadcast()
		r.mu.Unlock()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			// An input that ends early must not look like one that ended.
			r.breakWith(fmt.Errorf("reading stdin: %w", err))
			return
		}
	}
}

// stdinRoom waits for room in the window; false is the end of all pumping.
func (r *run) stdinRoom() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		select {
		case <-r.ended:
			return 0, false
		default:
		}
		if r.finished || r.in.closed || r.breakage != nil {
			return 0, false
		}
		if room := wire.RunWindow - int(r.in.read-r.in.taken); room > 0 {
			return room, true
		}
		r.changed.Wait()
	}
}
