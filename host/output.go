package host

import (
	"fmt"
	"io"
	"reflect"
	"sync"

	"github.com/berth-dev/berth/shared/workspace"
)

// output is one stream of a run, guarded by the run's mutex. Without a writer it
// is collected, and taken as it arrives.
type output struct {
	name   string
	writer io.Writer

	received, taken, told int64 // offsets: arrived, handed over, and what the plugin knows of that
	chunks                [][]byte
	collected             []byte
	head                  []byte // the beginning of what is not collected
	ended                 bool   // no more will arrive
}

func newOutput(name string, w io.Writer) *output { return &output{name: name, writer: w} }

// startAt is where a stream begins that was partly delivered before.
func (o *output) startAt(offset int64) { o.received, o.taken, o.told = offset, offset, offset }

func (o *output) pending() int64 { return o.received - o.taken }
func (o *output) untold() int64  { return o.taken - o.told }

// smallChunk is below what copying costs less than keeping a message's buffer.
const smallChunk = 4 << 10

func (o *output) accept(data []byte) {
	o.received += int64(len(data))
	if o.writer == nil {
		o.collected = append(o.collected, data...)
		o.taken = o.received
		return
	}
	if room := workspace.PartialOutput - len(o.head); room > 0 {
		o.head = append(o.head, data[:min(room, len(data))]...)
	}
	if len(data) == 0 {
		return
	}
	// Many small messages must not become as many buffers.
	if n := len(o.chunks); n > 0 && len(data) < smallChunk && cap(o.chunks[n-1])-len(o.chunks[n-1]) >= len(data) {
		o.chunks[n-1] = append(o.chunks[n-1], data...)
		return
	}
	if len(data) < smallChunk {
		data = append(make([]byte, 0, smallChunk), data...)
	}
	o.chunks = append(o.chunks, data)
}

// drop lets go of what nobody will take any more.
func (o *output) drop() {
	o.chunks = nil
	o.taken = o.received
}

// beginning is a copy of the first bytes that arrived.
func (o *output) beginning() []byte {
	head := o.head
	if o.writer == nil {
		head = o.collected[:min(len(o.collected), workspace.PartialOutput)]
	}
	return append([]byte(nil), head...)
}

// deliver hands one stream to the caller's writer.
func (r *run) deliver(o *output) {
	for {
		r.mu.Lock()
		for len(o.chunks) == 0 && !o.ended && !r.finished && r.breakage == nil {
			r.changed.Wait()
		}
		if len(o.chunks) == 0 || r.finished || r.breakage != nil {
			r.mu.Unlock()
			return
		}
		chunk := o.chunks[0]
		o.chunks = o.chunks[1:]
		r.mu.Unlock()

		n, err := o.writer.Write(chunk)
		if err == nil && n < len(chunk) {
			err = io.ErrShortWrite
		}
		if err != nil {
			r.breakWith(fmt.Errorf("writing %s: %w", o.name, err))
			return
		}
		r.mu.Lock()
		if r.breakage == nil { // otherwise all of it counts as taken already
			o.taken += int64(len(chunk))
		}
		r.changed.Broadcast()
		r.mu.Unlock()
	}
}

// serialized makes one writer that was given for both streams safe for that, as
// os/exec does: it is called by one goroutine at a time.
func serialized(stdout, stderr io.Writer) (io.Writer, io.Writer) {
	if stdout == nil || stderr == nil {
		return stdout, stderr
	}
	if t := reflect.TypeOf(stdout); t != reflect.TypeOf(stderr) || !t.Comparable() || stdout != stderr {
		return stdout, stderr
	}
	w := &lockedWriter{w: stdout}
	return w, w
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
