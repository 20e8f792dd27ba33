package process

import (
	"bytes"
	"sync"
)

// maxLine is the most bytes of one line that are kept. A longer one is still one
// line, marked as cut, so that a plugin can neither fill the host's memory nor
// turn one record into many.
const maxLine = 64 << 10

// lines cuts what is written to it into lines. It never fails and never blocks
// longer than emit does.
type lines struct {
	emit func(line []byte, cut int) // cut: how many bytes of the line are missing

	mu   sync.Mutex
	line []byte
	cut  int
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := b; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		keep := min(len(part), maxLine-len(l.line))
		l.line = append(l.line, part[:keep]...)
		l.cut += len(part) - keep
		if ended {
			l.end()
		}
		rest = after
	}
	return len(b), nil
}

// flush emits a last line that has no end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) > 0 {
		l.end()
	}
}

func (l *lines) end() {
	if l.cut == 0 {
		l.line = bytes.TrimSuffix(l.line, []byte("\r"))
	}
	l.emit(l.line, l.cut)
	l.line, l.cut = l.line[:0], 0
	if cap(l.line) > 4<<10 {
		l.line = nil // one long line is no reason to hold its memory for ever
	}
}
