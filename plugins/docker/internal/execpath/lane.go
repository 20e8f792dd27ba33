package execpath

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

const (
	// laneRoom is how much output waits for its reader before the engine is told to
	// wait (contract C10).
	laneRoom = 256 << 10
	// keptStderr is how much of what a script of ours complains about is kept.
	keptStderr = 16 << 10
	// longestMark is more than any line that tells something.
	longestMark = 256
)

var errBadMark = errors.New("a script of ours was answered for by somebody else")

// lane is one output of a shell: bytes for a reader, and between them lines that
// begin with a mark, which tell what happens.
type lane struct {
	mark []byte
	// told is called with the text of each such line; true ends the output.
	told func(text string) (end bool)
	// sink keeps the beginning and drops the rest rather than wait for a reader.
	sink bool

	mu    sync.Mutex
	wake  sync.Cond
	held  []byte // perhaps the beginning of a mark; only Write touches it
	buf   []byte
	ended bool
	drop  bool
	err   error // why there will never be any more
}

func newLane(word string, sink bool, told func(string) bool) *lane {
	l := &lane{mark: []byte("\x01" + word), sink: sink, told: told}
	l.wake.L = &l.mu
	return l
}

// Write takes what the engine delivers, and waits while there is no room.
func (l *lane) Write(p []byte) (int, error) {
	data := p
	if len(l.held) > 0 {
		data = append(l.held, p...)
		l.held = nil
	}
	for len(data) > 0 {
		at := bytes.Index(data, l.mark)
		if at < 0 {
			keep := partOfMark(data, l.mark)
			l.deliver(data[:len(data)-keep])
			l.held = append([]byte(nil), data[len(data)-keep:]...)
			break
		}
		l.deliver(data[:at])
		data = data[at:]
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			if len(data) > longestMark {
				return 0, errBadMark
			}
			l.held = append([]byte(nil), data...)
			break
		}
		text := string(bytes.TrimPrefix(data[len(l.mark):end], []byte(" ")))
		data = data[end+1:]
		if l.told(text) {
			l.finish()
		}
	}
	return len(p), nil
}

// partOfMark is how many bytes at the end of data may begin a mark.
func partOfMark(data, mark []byte) int {
	for n := min(len(mark)-1, len(data)); n > 0; n-- {
		if bytes.HasSuffix(data, mark[:n]) {
			return n
		}
	}
	return 0
}

func (l *lane) deliver(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(data) > 0 {
		if l.ended || l.drop || l.err != nil {
			return
		}
		if l.sink {
			l.buf = append(l.buf, data[:min(len(data), keptStderr-len(l.buf))]...)
			return
		}
		room := laneRoom - len(l.buf)
		if room <= 0 {
			l.wake.Wait()
			continue
		}
		n := min(room, len(data))
		l.buf = append(l.buf, data[:n]...)
		data = data[n:]
		l.wake.Broadcast()
	}
}

// finish is the end of an answer.
func (l *lane) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.wake.Broadcast()
}

// fail is the end of the stream: after it nothing begins.
func (l *lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.wake.Broadcast()
}

// discard gives up what was not read.
func (l *lane) discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop, l.buf = true, nil
	l.wake.Broadcast()
}

// begin makes it ready for the next answer.
func (l *lane) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.buf = false, nil
}

// Read waits for output.
func (l *lane) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.buf) == 0 {
		switch {
		case l.ended, l.drop:
			return 0, io.EOF
		case l.err != nil:
			return 0, l.err
		}
		l.wake.Wait()
	}
	n := copy(p, l.buf)
	l.buf = l.buf[n:]
	if len(l.buf) == 0 {
		l.buf = nil
	}
	l.wake.Broadcast()
	return n, nil
}

// wait waits for the end and returns what a sink has kept.
func (l *lane) wait() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended && l.err == nil {
		l.wake.Wait()
	}
	if l.ended {
		return l.buf, nil
	}
	return l.buf, l.err
}
