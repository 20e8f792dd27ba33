package sdk

import (
	"fmt"
	"sync"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// outbox is what is on its way to the host. Its output is bounded by the window.
// That of a durable run keeps output until it is taken, to send it again on another
// stream.
type outbox struct {
	keeps bool

	mu         sync.Mutex
	link       *link // which sends; nobody else is given anything
	parked     bool  // there is none
	messages   []*berthv1.RunResponse
	last       [2]*berthv1.RunOutput  // of messages, the last of each output
	results    int                    // of messages, results of signals
	stdinTaken *berthv1.RunStdinTaken // only the latest
	outcome    *berthv1.RunOutcome
	ended      bool
	wake       chan struct{}

	started *berthv1.RunResponse    // once it was put, to be told on every stream
	kept    [2][]*berthv1.RunOutput // sent or, while it is parked, to be sent; not taken
	base    [2]int64                // offsets from which on output is held
	end     [2]int64                // and up to which
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// update changes the box, unless its outcome is in, and wakes the sender.
func (o *outbox) update(change func()) (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	change()
	o.signal()
	return true
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) put(m *berthv1.RunResponse) {
	o.update(func() {
		if m.GetStarted() != nil {
			o.started = m
		}
		if o.parked {
			return // the start is told to whoever attaches, an answer to a signal to nobody
		}
		o.messages = append(o.messages, m)
		if m.GetSignalResult() != nil {
			o.results++
		}
	})
}

// unsentResults is how many results of signals have not been sent.
func (o *outbox) unsentResults() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.results
}

// output queues bytes, which it copies, and reports whether it did. Those of a
// command that writes one at a time, or by turns here and there, are put together
// while they wait.
func (o *outbox) output(which int, offset int64, data []byte) (done bool) {
	return o.update(func() {
		o.end[which] = offset + int64(len(data))
		if last := o.last[which]; last != nil && len(last.Data)+len(data) <= wire.ChunkSize {
			last.Data = append(last.Data, data...)
			return
		}
		chunk := &berthv1.RunOutput{Offset: offset, Data: append([]byte(nil), data...)}
		o.last[which] = chunk
		if o.parked {
			o.kept[which] = append(o.kept[which], chunk)
		} else {
			o.messages = append(o.messages, outputMessage(which, chunk))
		}
	})
}

func outputMessage(which int, chunk *berthv1.RunOutput) *berthv1.RunResponse {
	if which == stderr {
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stderr{Stderr: chunk}}
	}
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stdout{Stdout: chunk}}
}

func (o *outbox) tookStdin(offset int64, closed bool) {
	o.update(func() { o.stdinTaken = &berthv1.RunStdinTaken{Offset: offset, Closed: closed} })
}

// finish is the last that goes in.
func (o *outbox) finish(outcome *berthv1.RunOutcome) {
	o.update(func() { o.outcome, o.ended = outcome, true })
}

// over reports whether the outcome is in.
func (o *outbox) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// next is what l is to send next, nil when there is nothing. After last there is
// nothing more.
func (o *outbox) next(l *link) (m *berthv1.RunResponse, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case l != o.link:
		return nil, false
	case len(o.messages) > 0:
		m = o.messages[0]
		o.messages[0] = nil
		if o.messages = o.messages[1:]; len(o.messages) == 0 {
			o.messages = nil
		}
		o.taken(m)
		return m, false
	case o.stdinTaken != nil:
		m = &berthv1.RunResponse{Message: &berthv1.RunResponse_StdinTaken{StdinTaken: o.stdinTaken}}
		o.stdinTaken = nil
		return m, false
	case o.outcome != nil:
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: o.outcome}}, true
	}
	return nil, false
}

// taken notes that m is on its way: nothing may be added to it.
func (o *outbox) taken(m *berthv1.RunResponse) {
	if m.GetSignalResult() != nil {
		o.results--
	}
	for which, chunk := range [2]*berthv1.RunOutput{stdout: m.GetStdout(), stderr: m.GetStderr()} {
		if chunk == nil {
			continue
		}
		if chunk == o.last[which] {
			o.last[which] = nil
		}
		if o.keeps {
			o.kept[which] = append(o.kept[which], chunk)
		}
	}
}

// release lets go of output up to offset, as far as it was sent.
func (o *outbox) release(which int, offset int64) {
	if !o.keeps {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.kept[which]) > 0 && chunkEnd(o.kept[which][0]) <= offset {
		o.dropOldest(which)
	}
}

// dropOldest drops one kept chunk. The lock must be held, as for those below.
func (o *outbox) dropOldest(which int) (n int64) {
	chunk := o.kept[which][0]
	o.kept[which][0] = nil
	if o.kept[which] = o.kept[which][1:]; len(o.kept[which]) == 0 {
		o.kept[which] = nil
	}
	o.base[which] = chunkEnd(chunk)
	if chunk == o.last[which] {
		o.last[which] = nil
	}
	return int64(len(chunk.GetData()))
}

func chunkEnd(chunk *berthv1.RunOutput) int64 {
	return chunk.GetOffset() + int64(len(chunk.GetData()))
}

// discard drops at least n bytes of a parked box, if it holds as many: the oldest of
// the output of which it holds more. It returns what it holds from on.
func (o *outbox) discard(n int64) (base [2]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for n > 0 && o.parked {
		which := stdout
		if o.end[stderr]-o.base[stderr] > o.end[stdout]-o.base[stdout] {
			which = stderr
		}
		if len(o.kept[which]) == 0 {
			break
		}
		n -= o.dropOldest(which)
	}
	return o.base
}

// park takes the box from its stream. What of the output was not sent joins what
// was: the next one has it all.
func (o *outbox) park() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.link, o.parked = nil, true
	o.keepUnsent()
}

func (o *outbox) keepUnsent() {
	for _, m := range o.messages {
		for which, chunk := range [2]*berthv1.RunOutput{stdout: m.GetStdout(), stderr: m.GetStderr()} {
			if chunk != nil {
				o.kept[which] = append(o.kept[which], chunk)
			}
		}
	}
	// The last chunk may be on its way still: nothing is added to it.
	o.messages, o.results, o.last = nil, 0, [2]*berthv1.RunOutput{}
}

// attach gives the box to l, to whom everything from the offsets is sent that its
// host has, and from the oldest that is held.
func (o *outbox) attach(l *link, have [2]int64, stdin inboxState) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for which, offset := range have {
		if offset > o.end[which] {
			return fmt.Errorf("the host has %d bytes of %s, there are %d: %w", offset, outputNames[which], o.end[which], workspace.ErrInvalid)
		}
	}
	o.keepUnsent()
	o.link, o.parked = l, false
	for which, offset := range have {
		for len(o.kept[which]) > 0 && chunkEnd(o.kept[which][0]) <= offset {
			o.dropOldest(which)
		}
		o.base[which] = max(o.base[which], offset)
	}
	o.messages = append(o.messages, &berthv1.RunResponse{Message: &berthv1.RunResponse_Attached{Attached: &berthv1.RunAttached{
		StdoutOffset: o.base[stdout], StderrOffset: o.base[stderr], StdinTaken: stdin.taken, StdinEnded: stdin.ended,
	}}})
	if o.started != nil {
		o.messages = append(o.messages, o.started)
	}
	for which := range o.kept {
		for _, chunk := range o.kept[which] {
			if skip := o.base[which] - chunk.GetOffset(); skip > 0 {
				chunk = &berthv1.RunOutput{Offset: o.base[which], Data: chunk.GetData()[skip:]}
			}
			o.messages = append(o.messages, outputMessage(which, chunk))
		}
		o.kept[which] = nil
	}
	o.stdinTaken = nil
	if stdin.closed {
		o.stdinTaken = &berthv1.RunStdinTaken{Offset: stdin.taken, Closed: true}
	}
	o.signal()
	return nil
}

// holds is how many bytes of output are held.
func (o *outbox) holds() (n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for which := range o.end {
		n += o.end[which] - o.base[which]
	}
	return n
}
