package host

import (
	"errors"
	"io"
	"io/fs"
)

// observe has a reader's end be that of the observation. It may have come.
func (r *reader) observe(ob *observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observation = ob; r.err != nil {
		r.tellEnd()
	}
}

// tellEnd is called with r.mu held, when r.err is set.
func (r *reader) tellEnd() {
	r.observation.moved(0, r.got)
	if r.observation != nil {
		r.observation.endStream(r.h, r.err)
		r.observation = nil
	}
}

// observe has a writer's end be that of the observation. It may have come.
func (w *writer) observe(ob *observation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.observation = ob; w.done {
		w.tellEnd()
	}
}

// tellEnd is called with w.mu held, when w.done is set.
func (w *writer) tellEnd() {
	w.observation.moved(w.sent, 0)
	if w.observation != nil {
		w.observation.endStream(w.h, w.err)
		w.observation = nil
	}
}

// endStream ends that of a stream, whose end by its own user is no error.
func (ob *observation) endStream(h *handle, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, fs.ErrClosed) && !errors.Is(err, errClosed) {
		err = nil
	}
	if ref, ok := h.Ref(); ok {
		ob.set(attrWorkspace.String(ref.String()))
	}
	ob.end(err)
}

// observe has a run's end be that of the observation. It may have come.
func (r *run) observe(ob *observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.observation = ob; r.finished {
		r.tellEnd()
	}
}

// tellEnd is called with r.mu held, when the run is finished.
func (r *run) tellEnd() {
	ob := r.observation
	if ob == nil {
		return
	}
	r.observation = nil
	out := r.out[0].received + r.out[1].received
	if r.follow != nil {
		out -= r.follow.StdoutOffset + r.follow.StderrOffset
	}
	ob.moved(r.in.read, out)
	if r.result != nil {
		ob.set(attrExitCode.Int(r.result.ExitCode))
	}
	ob.end(r.err)
}
