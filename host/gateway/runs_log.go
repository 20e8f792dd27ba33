package gateway

import (
	"sync"

	"github.com/berth-dev/berth/shared/workspace"
)

// mergedChunk is up to what size small pieces of output are put together: a
// command that writes byte by byte costs no more than one that does not.
const mergedChunk = 32 << 10

// outputStream is one of a run's two.
type outputStream int

// The streams.
const (
	stdoutStream outputStream = iota
	stderrStream
)

// String is its name on the wire.
func (s outputStream) String() string { return [...]string{"stdout", "stderr"}[s] }

// runLog is what a run writes, in the order in which it comes, for its answer and
// for those who follow it. It holds as much of it as was asked for: the newest.
type runLog struct {
	keep int // bytes; zero is all

	mu      sync.Mutex
	changed chan struct{} // closed by the next change; nil if nobody waits for one
	chunks  []logChunk
	first   int64    // the number of chunks[0]
	held    int      // bytes in chunks
	begins  [2]int64 // where what is held of each stream begins
	ends    [2]int64 // how much each stream has written
	lead    *follower
	over    bool
}

// logChunk is a piece of one stream. It only grows.
type logChunk struct {
	stream outputStream
	offset int64
	data   []byte
}

func newRunLog(keep int) *runLog { return &runLog{keep: keep} }

// logWriter writes one stream to a log.
type logWriter struct {
	log    *runLog
	stream outputStream
}

// Write waits for the one who leads, if too much waits for that.
func (w logWriter) Write(p []byte) (int, error) {
	w.log.write(w.stream, p)
	return len(p), nil
}

func (l *runLog) write(stream outputStream, p []byte) {
	if len(p) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.lead != nil && !l.over {
		waiting := l.ends[0] - l.lead.at[0] + l.ends[1] - l.lead.at[1]
		if waiting == 0 || waiting+int64(len(p)) <= int64(l.keep) {
			break
		}
		change := l.await()
		l.mu.Unlock()
		<-change
		l.mu.Lock()
	}
	if last := len(l.chunks) - 1; last >= 0 && l.chunks[last].stream == stream && len(l.chunks[last].data)+len(p) <= mergedChunk {
		l.chunks[last].data = append(l.chunks[last].data, p...)
	} else {
		l.chunks = append(l.chunks, logChunk{stream: stream, offset: l.ends[stream], data: append([]byte(nil), p...)})
	}
	l.ends[stream] += int64(len(p))
	l.held += len(p)
	l.trim()
	l.change()
}

// trim lets go of the oldest, but never of what is still to be given to the one
// who leads.
func (l *runLog) trim() {
	if l.keep == 0 {
		return
	}
	for len(l.chunks) > 1 && l.held > l.keep && (l.lead == nil || l.first < l.lead.next) {
		c := l.chunks[0]
		l.chunks[0] = logChunk{} // for the garbage collector
		l.chunks = l.chunks[1:]
		l.first++
		l.held -= len(c.data)
		l.begins[c.stream] = c.offset + int64(len(c.data))
	}
}

// await returns what the next change closes.
func (l *runLog) await() <-chan struct{} {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

func (l *runLog) change() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// end says that nothing more is written.
func (l *runLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.change()
}

// written is how many bytes each stream has got.
func (l *runLog) written() (stdout, stderr int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[stdoutStream], l.ends[stderrStream]
}

// all is one stream's output, of a log that holds all: the first limit bytes.
func (l *runLog) all(stream outputStream, limit int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := min(int(l.ends[stream]), limit)
	data := make([]byte, 0, size)
	for _, c := range l.chunks {
		if c.stream == stream {
			data = append(data, c.data[:min(len(c.data), size-len(data))]...)
		}
	}
	return data
}

// text is one stream's output with each undecodable byte replaced (contract C4).
func (l *runLog) text(stream outputStream, limit int) string {
	return decoded(l.all(stream, limit))
}

func decoded(data []byte) string { return (&workspace.Result{Stdout: data}).StdoutText() }

// follower reads a log from some point on.
type follower struct {
	log  *runLog
	next int64    // the number of the chunk to look at
	at   [2]int64 // what it has of each stream
}

// follow begins at offsets, which may lie before what is held, but not beyond what
// was written: false. For the one who leads, nothing is let go of that it has not
// read, and the command is held up for it.
func (l *runLog) follow(stdout, stderr int64, lead bool) (*follower, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &follower{log: l, next: l.first, at: [2]int64{stdout, stderr}}
	for s, at := range f.at {
		if at < 0 || at > l.ends[s] {
			return nil, false
		}
	}
	if lead {
		l.lead = f
	}
	return f, true
}

// piece is what a follower gets: output, or that there is a gap.
type piece struct {
	stream outputStream
	offset int64 // of the first byte of data, or of the first that is held after a gap
	data   []byte
	gap    int64 // bytes that are not held any more
}

// What a follower is told instead of a piece.
type followed int

const (
	gotPiece followed = iota
	atEnd             // of the run's output
	upToDate          // nothing more for now
)

// read returns the next piece, or what there is to wait for if there is none now.
// Its data are not to be changed.
func (f *follower) read() (piece, followed, <-chan struct{}) {
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range f.at {
		if begin := l.begins[s]; f.at[s] < begin {
			gap := begin - f.at[s]
			f.at[s] = begin
			f.moved()
			return piece{stream: outputStream(s), offset: begin, gap: gap}, gotPiece, nil
		}
	}
	f.next = max(f.next, l.first)
	for ; f.next-l.first < int64(len(l.chunks)); f.next++ {
		c := l.chunks[f.next-l.first]
		from := f.at[c.stream] - c.offset
		if from >= int64(len(c.data)) {
			continue
		}
		f.at[c.stream] = c.offset + int64(len(c.data))
		f.moved()
		return piece{stream: c.stream, offset: c.offset + from, data: c.data[from:len(c.data):len(c.data)]}, gotPiece, nil
	}
	f.next = max(f.next-1, l.first) // the last one may still grow
	if l.over {
		return piece{}, atEnd, nil
	}
	return piece{}, upToDate, l.await()
}

// moved tells who waits for the one who leads.
func (f *follower) moved() {
	if f.log.lead == f {
		f.log.trim()
		f.log.change()
	}
}

// leave ends the following: nothing is held up for it any more.
func (f *follower) leave() {
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lead == f {
		l.lead = nil
		l.trim()
		l.change()
	}
}
