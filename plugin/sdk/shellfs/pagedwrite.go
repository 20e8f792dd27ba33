package shellfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// pagedWrite takes the frames of a [writer] and sends pages.
type pagedWrite struct {
	pagedCall
	answer strings.Reader // what the script of a write says at first

	mu     sync.Mutex
	frame  int // how much of the frame is to come
	page   []byte
	staged string // the file that gathers them, once there is one
	size   int64  // of it
	noPut  bool   // its parts travel as arguments
	begun  bool   // there may be a file of ours
	over   bool
}

// errFrames is a fault of ours.
var errFrames = errors.New("a frame of a file is not one")

// Write takes a frame's head, or a part of its content.
func (w *pagedWrite) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return 0, io.ErrClosedPipe
	}
	if w.frame == 0 {
		return len(p), w.head(p)
	}
	if len(p) > w.frame {
		return 0, errFrames
	}
	w.frame -= len(p)
	w.page = append(w.page, p...)
	for most := w.most(); len(w.page) > most; most = w.most() {
		if err := w.send(w.page[:most]); err != nil {
			return 0, err
		}
		w.page = append(w.page[:0], w.page[most:]...)
	}
	return len(p), nil
}

// most is how long a page is.
func (w *pagedWrite) most() int {
	if w.puts() {
		return w.runner.maxPut
	}
	return w.runner.inputPage()
}

// puts reports whether pages that are too long for arguments travel as files.
func (w *pagedWrite) puts() bool {
	return !w.noPut && w.runner.put != nil && w.runner.maxPut > w.runner.inputPage()
}

// head reads what comes before a frame's content, or in the place of a last frame.
func (w *pagedWrite) head(p []byte) error {
	kind, number, ok := bytes.Cut(bytes.TrimSuffix(p, []byte("\n")), []byte(" "))
	n, err := strconv.Atoi(string(number))
	switch {
	case !ok || err != nil:
		return errFrames
	case string(kind) == "d":
		w.frame = n
		return nil
	case int64(n) != w.size+int64(len(w.page)):
		return errFrames
	}
	err = w.publish()
	w.over, w.begun = true, w.begun && err != nil
	return err
}

// send adds a page to the file that gathers them.
func (w *pagedWrite) send(page []byte) error {
	if w.puts() && len(page) > w.runner.inputPage() {
		err := w.put(page)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
		w.noPut = true
	}
	for len(page) > 0 {
		n := min(len(page), w.runner.inputPage())
		if err := w.add(n, w.runner.pages(page[:n])); err != nil {
			return err
		}
		page = page[n:]
	}
	return nil
}

// put sends a page as a file of its own.
func (w *pagedWrite) put(page []byte) error {
	part := strings.TrimSuffix(w.runner.dir, "/") + "/" + stageName()
	err := w.runner.put(w.ctx, part, page)
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err == nil {
		err = w.add(len(page), []string{"f", part})
	}
	if err != nil {
		w.over = true
		w.drop("op_drop", part)
	}
	return err
}

// add adds what the arguments of a page hold.
func (w *pagedWrite) add(length int, content []string) error {
	before, after := strconv.FormatInt(w.size, 10), strconv.FormatInt(w.size+int64(length), 10)
	if w.staged == "" {
		out, err := w.run(w.with("op_begin", append([]string{after}, content...)...))
		if err != nil {
			return err
		}
		w.staged = string(out)
	} else if _, err := w.run(append([]string{"op_more", w.staged, before, after}, content...)); err != nil {
		return err
	}
	w.size += int64(length)
	return nil
}

// publish ends the write. A file of one page is one command.
func (w *pagedWrite) publish() error {
	if w.staged == "" && len(w.page) <= w.runner.inputPage() {
		_, err := w.run(w.with("op_put", append([]string{strconv.Itoa(len(w.page))}, w.runner.pages(w.page)...)...))
		return err
	}
	if len(w.page) > 0 {
		if err := w.send(w.page); err != nil {
			return err
		}
	}
	args := w.with("op_finish", strconv.FormatInt(w.size, 10))
	args[len(args)-2] = w.staged
	_, err := w.run(args)
	return err
}

// with is an operation with the arguments of the write itself.
func (w *pagedWrite) with(op string, more ...string) []string {
	args := append([]string{op}, w.args[1:]...)
	return append(args, more...)
}

// errRefused has its reason in Wait.
var errRefused = errors.New("the script of a write ended")

func (w *pagedWrite) run(args []string) ([]byte, error) {
	w.begun = true
	out, err := w.do(args, maxHeader)
	if err == nil && w.status != 0 {
		err = fmt.Errorf("%w with status %d", errRefused, w.status)
		w.begun = false // it has cleaned up
	}
	w.over = w.over || err != nil
	return out, err
}

// Read says what the script of a write says.
func (w *pagedWrite) Read(p []byte) (int, error) { return w.answer.Read(p) }

// Close removes what is not published. What is being sent ends first.
func (w *pagedWrite) Close() error {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.begun {
		w.begun = false
		const exclusive = 3
		args := w.with("op_abandon")
		args[exclusive] = ""
		w.drop(args...)
	}
	return nil
}
