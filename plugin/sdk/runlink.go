package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// orphanWait is how long a run is kept without a stream before it is stopped or, if
// it is detached, begins to lose its oldest output (contract B3).
const orphanWait = 10 * time.Second

var (
	errTakenOver = errors.New("another stream has attached to the run")
	errOrphaned  = fmt.Errorf("no host attached to it again within %v of its stream's end", orphanWait)
)

// link is one stream that carries a run. Its goroutines: the handler sends, one
// receives.
type link struct {
	run    *run
	stream runStream

	losing sync.Once
	lost   chan struct{} // closed when this stream is to end
	err    error         // how, once lost is closed
	half   bool          // the host sends no more; guarded by the links' mutex
	last   bool          // the outcome was sent; the same
}

// links are a run's streams, of which one at most carries it.
type links struct {
	mu      sync.Mutex
	current *link
	orphan  *time.Timer // runs while there is none
	kept    *time.Timer // runs from the outcome on
}

func newLink(r *run, stream runStream) *link {
	return &link{run: r, stream: stream, lost: make(chan struct{})}
}

// firstLink is the stream that started the run.
func (r *run) firstLink(stream runStream) *link {
	l := newLink(r, stream)
	r.links.current, r.out.link = l, l
	return l
}

// attach has l carry the run from the offsets that its host has.
func (r *run) attach(l *link, have [2]int64) error {
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	stdin := r.stdin.state()
	if err := r.out.attach(l, have, stdin); err != nil {
		return fmt.Errorf("attaching to run %s: %w", r.id, err)
	}
	r.window.overwrite(nil)
	if r.links.orphan != nil {
		r.links.orphan.Stop()
	}
	if r.links.current != nil {
		r.links.current.lose(fmt.Errorf("run %s: %w", r.id, errTakenOver))
	}
	r.links.current = l
	return nil
}

// leave ends what l has of the run, which waits for another stream.
func (r *run) leave(l *link, err error) {
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	l.lose(err)
	if r.links.current != l {
		return
	}
	r.links.current = nil
	r.out.park()
	if !r.out.over() {
		r.links.orphan = time.AfterFunc(r.server.orphanWait, r.orphaned)
	}
}

// orphaned is for a run that nobody attached to again.
func (r *run) orphaned() {
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	switch {
	case r.links.current != nil:
	case r.start.GetDetached():
		r.window.overwrite(r.out)
	default:
		r.stop(stopInvalid(errOrphaned))
	}
}

func (r *run) carriedBy(l *link) bool {
	r.links.mu.Lock()
	defer r.links.mu.Unlock()
	return r.links.current == l
}

// lose has the stream end with err. The first one counts.
func (l *link) lose(err error) {
	l.losing.Do(func() {
		l.err = err
		close(l.lost)
	})
}

// carry serves the stream until it ends.
func (l *link) carry() error {
	defer context.AfterFunc(l.stream.Context(), l.broke)()
	l.run.server.goSafely("run", l.receive)
	err := l.send()
	if l.run.durable {
		l.run.leave(l, err)
	}
	return err
}

// broke is for a stream that breaks. It stops a run that cannot be attached again.
func (l *link) broke() {
	if l.run.durable {
		l.run.leave(l, context.Canceled)
		return
	}
	l.run.stop(stopCanceled)
}

// send empties the outbox into the stream, up to the outcome. Those of durable runs
// stay open after it, until the host says that it was taken.
func (l *link) send() error {
	out := l.run.out
	var broken error
	for {
		m, last := out.next(l)
		if m == nil {
			select {
			case <-out.wake:
			case <-l.lost:
				out.signal() // what woke us may have been for another
				return l.err
			}
			continue
		}
		if broken == nil {
			if broken = l.stream.Send(m); broken != nil {
				l.broke()
			}
		}
		if !last {
			continue
		}
		if l.run.durable && broken == nil {
			l.sentLast()
			<-l.lost
			return l.err
		}
		return broken
	}
}

// sentLast and hostIsDone note the two reasons for which a stream has no more to do.
func (l *link) sentLast() {
	l.run.links.mu.Lock()
	defer l.run.links.mu.Unlock()
	if l.last = true; l.half {
		l.lose(nil)
	}
}

func (l *link) hostIsDone() {
	l.run.links.mu.Lock()
	defer l.run.links.mu.Unlock()
	if l.half = true; l.last {
		l.lose(nil)
	}
}

// receive hears the host until the stream ends.
func (l *link) receive() {
	r := l.run
	for {
		m, err := l.stream.Recv()
		if errors.Is(err, io.EOF) {
			// The host sends no more. It may still listen, but an input that is
			// not complete never will be.
			if r.start.GetStdin() && !r.stdin.complete() {
				r.stop(stopInvalid(fmt.Errorf("the host closed the stream before the end of stdin: %w", workspace.ErrInvalid)))
			}
			l.hostIsDone()
			return
		}
		if err != nil {
			l.broke()
			return
		}
		if !r.carriedBy(l) {
			return // another one speaks for the host now
		}
		if err := l.handle(m); err != nil {
			r.stop(stopInvalid(err))
			if r.out.over() {
				l.lose(err) // it is too late for an outcome that says so
			}
		}
	}
}

// handle takes one message. Those that it does not know mean nothing to it.
func (l *link) handle(m *berthv1.RunRequest) error {
	r := l.run
	switch m := m.GetMessage().(type) {
	case *berthv1.RunRequest_Start, *berthv1.RunRequest_Attach:
		return fmt.Errorf("a second first message: %w", workspace.ErrInvalid)
	case *berthv1.RunRequest_Stdin:
		if !r.start.GetStdin() {
			return fmt.Errorf("stdin for a command without one: %w", workspace.ErrInvalid)
		}
		return r.stdin.put(m.Stdin)
	case *berthv1.RunRequest_StdinEnd:
		if !r.start.GetStdin() {
			return fmt.Errorf("stdin for a command without one: %w", workspace.ErrInvalid)
		}
		return r.stdin.end(m.StdinEnd)
	case *berthv1.RunRequest_Signal:
		if n := r.out.unsentResults(); n >= maxResults {
			return fmt.Errorf("signal: the results of %d others have not been taken: %w", n, workspace.ErrInvalid)
		}
		if err := workspace.Signal(m.Signal.GetName()).Validate(); err != nil {
			r.answer(m.Signal, err)
			return nil
		}
		select {
		case r.signals <- m.Signal:
		default:
			r.answer(m.Signal, fmt.Errorf("signal %s: %d others have not been delivered yet", m.Signal.GetName(), maxSignals))
		}
	case *berthv1.RunRequest_Stop:
		r.stop(stopCanceled)
	case *berthv1.RunRequest_Taken:
		if err := r.window.take(r.out, m.Taken); err != nil {
			return err
		}
		if m.Taken.GetOutcome() && r.durable && r.out.over() {
			r.forget()
			l.lose(nil)
		}
	}
	return nil
}

func (r *run) answer(sig *berthv1.RunSignal, err error) {
	result := &berthv1.RunSignalResult{Sequence: sig.GetSequence()}
	if err != nil {
		result.Error = r.server.redactor.detail(wire.ToDetail(err))
	}
	r.out.put(&berthv1.RunResponse{Message: &berthv1.RunResponse_SignalResult{SignalResult: result}})
}
