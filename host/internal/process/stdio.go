package process

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/wire"
)

// stdio are the descriptors of a plugin: nothing to read on stdin, whatever the
// host's own is, a pipe each for stdout and stderr, and the lifeline, which ends
// when the host does.
type stdio struct {
	stdout, stderr *os.File // ours
	lifeline       *os.File // ours, nil where the system cannot pass one

	in, out, err, life *os.File // the child's
}

func newStdio() (_ *stdio, err error) {
	s := &stdio{}
	defer func() {
		if err != nil {
			s.closeChild()
			s.close()
		}
	}()
	if s.in, err = os.Open(os.DevNull); err != nil {
		return nil, err
	}
	if s.stdout, s.out, err = os.Pipe(); err != nil {
		return nil, err
	}
	if s.stderr, s.err, err = os.Pipe(); err != nil {
		return nil, err
	}
	if passesFiles {
		s.life, s.lifeline, err = os.Pipe()
	}
	return s, err
}

// lifelineFD is where child puts the lifeline.
const lifelineFD = 3

func (s *stdio) child() []*os.File {
	files := []*os.File{s.in, s.out, s.err}
	if s.life != nil {
		files = append(files, s.life)
	}
	return files
}

func (s *stdio) env() []string {
	if s.life == nil {
		return nil
	}
	return []string{wire.LifelineEnv + "=" + strconv.Itoa(lifelineFD)}
}

// closeChild closes the child's ends in this process.
func (s *stdio) closeChild() { closeFiles(s.in, s.out, s.err, s.life) }

// close closes our ends.
func (s *stdio) close() { closeFiles(s.stdout, s.stderr, s.lifeline) }

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// drain makes the readers of a process that has ended read what it left in the
// pipes and then stop, though a child of its own may still hold the other ends.
func (s *stdio) drain() {
	endReads(s.stdout)
	endReads(s.stderr)
}

// output reads one output of the process until its end, or, once the process has
// ended, until the pipe is empty.
type output struct {
	file *os.File
	rest int // what may still be read after the end; zero before it
}

// maxRest is the most that a pipe can hold (Linux' pipe-max-size). Whoever writes
// more after the process's end is another process.
const maxRest = 1 << 20

// Read reads what is there, and waits for more while the process runs.
func (o *output) Read(b []byte) (int, error) {
	if o.rest == 0 {
		n, err := o.file.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		o.rest = maxRest
		if err := o.file.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
	n, err := readNow(o.file, b[:min(len(b), o.rest)])
	if o.rest -= n; o.rest == 0 {
		return n, io.EOF
	}
	return n, err
}

// chunk is how much of an output is read, and worked at, at once: some 40 lines.
const chunk = 8 << 10

// copyAll reads until the end, a flood at its pace.
func copyAll(sink io.Writer, r io.Reader) {
	buf := make([]byte, chunk)
	var pace pace
	for {
		n, err := r.Read(buf)
		pace.spend(func() { _, _ = sink.Write(buf[:n]) })
		if err != nil {
			return
		}
	}
}

// handoff gives go-plugin the handshake line and is then silent until it is
// closed. Send never waits for the reader.
type handoff struct {
	line chan []byte
	quit chan struct{}
	once sync.Once
	left []byte
}

func newHandoff() *handoff {
	return &handoff{line: make(chan []byte, 1), quit: make(chan struct{})}
}

// Send is called once at most.
func (h *handoff) Send(line string) { h.line <- []byte(line) }

// Read gives the line, then waits.
func (h *handoff) Read(b []byte) (int, error) {
	if len(h.left) == 0 {
		select {
		case h.left = <-h.line:
		case <-h.quit:
			return 0, io.EOF
		}
	}
	n := copy(b, h.left)
	h.left = h.left[n:]
	return n, nil
}

// Close ends the reader.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.quit) })
	return nil
}
