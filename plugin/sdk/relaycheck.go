package sdk

import (
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// hostTook notes what of the output the host has taken.
func (r *relayedRun) hostTook(m *berthv1.RunTaken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.takenAnew { // before, only what it received was known
		r.takenAnew, r.taken = false, [2]int64{}
	}
	for which, offset := range [2]int64{stdout: m.GetStdoutOffset(), stderr: m.GetStderrOffset()} {
		r.taken[which] = max(r.taken[which], min(offset, r.received[which]))
	}
}

// accept checks a message of the guest's and returns what the host is to have of
// it, if anything.
func (r *relayedRun) accept(m *berthv1.RunResponse) (*berthv1.RunResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if attached, ok := m.GetMessage().(*berthv1.RunResponse_Attached); ok != r.attaching && m.GetMessage() != nil {
		if ok {
			return nil, r.call.nonsense("twice, or unasked, what it holds of a command")
		}
		return nil, r.call.nonsense("with a command's messages before saying what it holds of them")
	} else if ok {
		return r.acceptAttached(attached.Attached)
	}
	switch m := m.GetMessage().(type) {
	case *berthv1.RunResponse_Started:
		if r.started {
			return nil, r.call.nonsense("twice that the command was started")
		}
		registry := m.Started.GetRunRegistry()
		if len(registry) > wire.MaxRunRegistry {
			return nil, r.call.nonsense("with a registry of runs of %d bytes", len(registry))
		}
		r.started = true
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Started{Started: &berthv1.RunStarted{RunRegistry: registry}}}, nil
	case *berthv1.RunResponse_Stdout:
		chunk, err := r.acceptOutput(stdout, m.Stdout)
		if chunk == nil {
			return nil, err
		}
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stdout{Stdout: chunk}}, nil
	case *berthv1.RunResponse_Stderr:
		chunk, err := r.acceptOutput(stderr, m.Stderr)
		if chunk == nil {
			return nil, err
		}
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Stderr{Stderr: chunk}}, nil
	case *berthv1.RunResponse_StdinTaken:
		offset := m.StdinTaken.GetOffset()
		if offset < r.stdinTaken || offset > r.stdinSent {
			return nil, r.call.nonsense("that %d bytes of stdin were taken, of %d sent and %d taken before", offset, r.stdinSent, r.stdinTaken)
		}
		r.stdinTaken = offset
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_StdinTaken{StdinTaken: &berthv1.RunStdinTaken{Offset: offset, Closed: m.StdinTaken.GetClosed()}}}, nil
	case *berthv1.RunResponse_SignalResult:
		result := &berthv1.RunSignalResult{Sequence: m.SignalResult.GetSequence()}
		if detail := m.SignalResult.GetError(); detail != nil {
			result.Error = r.call.detail(plainDetail(detail))
		}
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_SignalResult{SignalResult: result}}, nil
	case *berthv1.RunResponse_Outcome:
		outcome, err := r.acceptOutcome(m.Outcome)
		if err != nil {
			return nil, err
		}
		return &berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: outcome}}, nil
	}
	return nil, nil // of a newer version
}

// acceptAttached takes the guest's word for where it goes on. The caller holds r.mu,
// as those of the other accept functions do.
func (r *relayedRun) acceptAttached(m *berthv1.RunAttached) (*berthv1.RunResponse, error) {
	held := [2]int64{stdout: m.GetStdoutOffset(), stderr: m.GetStderrOffset()}
	for which, offset := range held {
		if offset < 0 {
			return nil, r.call.nonsense("that it holds %s from %d on", outputNames[which], offset)
		}
		r.received[which] = max(r.received[which], offset)
	}
	if m.GetStdinTaken() < 0 {
		return nil, r.call.nonsense("that %d bytes of stdin were taken", m.GetStdinTaken())
	}
	r.attaching = false
	r.taken = r.received
	// What was sent on the stream before may be under way to the command still: a
	// window at most. The host knows how much that was.
	r.stdinTaken, r.stdinSent = m.GetStdinTaken(), m.GetStdinTaken()+wire.RunWindow
	return &berthv1.RunResponse{Message: &berthv1.RunResponse_Attached{Attached: &berthv1.RunAttached{
		StdoutOffset: r.received[stdout], StderrOffset: r.received[stderr], StdinTaken: m.GetStdinTaken(), StdinEnded: m.GetStdinEnded(),
	}}}, nil
}

func (r *relayedRun) acceptOutput(which int, m *berthv1.RunOutput) (*berthv1.RunOutput, error) {
	data := m.GetData()
	pending := r.received[stdout] - r.taken[stdout] + r.received[stderr] - r.taken[stderr]
	switch {
	case !r.started:
		return nil, r.call.nonsense("with output of a command that it did not say was started")
	case m.GetOffset() != r.received[which]:
		return nil, r.call.nonsense("with %s at offset %d, after %d bytes", outputNames[which], m.GetOffset(), r.received[which])
	case len(data) == 0:
		return nil, nil
	case pending+int64(len(data)) > wire.RunWindow+wire.ChunkSize:
		return nil, r.call.nonsense("with more than %d bytes of output that were not taken", wire.RunWindow)
	}
	r.received[which] += int64(len(data))
	return &berthv1.RunOutput{Offset: m.GetOffset(), Data: data}, nil
}

func (r *relayedRun) acceptOutcome(m *berthv1.RunOutcome) (*berthv1.RunOutcome, error) {
	outcome := &berthv1.RunOutcome{StdoutEnd: r.received[stdout], StderrEnd: r.received[stderr]}
	switch result := m.GetResult().(type) {
	case *berthv1.RunOutcome_Exited:
		if code := result.Exited.GetCode(); code < 0 {
			return nil, r.call.nonsense("the exit code %d, which is none", code)
		}
		for which, end := range [2]int64{stdout: m.GetStdoutEnd(), stderr: m.GetStderrEnd()} {
			if end != r.received[which] {
				return nil, r.call.nonsense("that %s has %d bytes, after %d", outputNames[which], end, r.received[which])
			}
		}
		if !r.started {
			return nil, r.call.nonsense("with the exit code of a command that it did not say was started")
		}
		outcome.Result = &berthv1.RunOutcome_Exited{Exited: &berthv1.Exited{Code: result.Exited.GetCode()}}
	case *berthv1.RunOutcome_Error:
		outcome.Result = &berthv1.RunOutcome_Error{Error: r.call.detail(outcomeDetail(result.Error))}
	default:
		return nil, r.call.nonsense("an outcome without a result")
	}
	return outcome, nil
}
