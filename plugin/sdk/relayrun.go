package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// guestStopWait is how long after a timeout the guest may take to tell that it
	// stopped the command: the grace, as long again for what survives, and less on
	// top than a host gives to its plugin (contract C5).
	guestStopWait = 2*workspace.StopGrace + 500*time.Millisecond
	// guestEndWait is how long a guest may take to end a stream after its outcome,
	// when the host has no more to say.
	guestEndWait = 2 * time.Second
)

// errClosingRelay ends the stream of a run that goes on in its guest.
var errClosingRelay = fmt.Errorf("%w: the command goes on, as far as its workspace lets it: %w", errClosing, workspace.ErrTransient)

type guestRunStream = grpc.BidiStreamingClient[berthv1.RunRequest, berthv1.RunResponse]

// relayedRun is a run that a guest has, between its two streams. The handler
// carries the guest's messages to the host, one goroutine the host's to the guest;
// a side that does not take its messages holds back the other by gRPC's windows.
type relayedRun struct {
	stopper
	ctx   context.Context // of the stream to the guest
	call  guestCall
	entry *entry
	host  runStream
	guest guestRunStream
	full  time.Duration // the whole timeout
	// repeated: the start was sent before, and may have been heard.
	repeated bool

	// What the messages must agree with.
	mu         sync.Mutex
	attaching  bool // the guest is to say first what it still holds
	started    bool
	received   [2]int64
	taken      [2]int64 // by the host
	takenAnew  bool     // the host is to tell what it has taken
	stdinSent  int64
	stdinTaken int64
	// Of the end: the outcome was handed on, and the host has no more to say.
	over, hostDone bool
	bound          *time.Timer
}

func (s *server) newRelayedRun(e *entry, host runStream) *relayedRun {
	r := &relayedRun{stopper: stopper{stopCh: make(chan struct{})}, call: guestCall{server: s, id: e.id}, entry: e, host: host}
	r.ctx, r.cancel = context.WithCancel(host.Context())
	return r
}

// relayRun hands a run on to the guest. It was heard of at some time before its
// workspace was attached, which its age counts and its timeout does not.
func (s *server) relayRun(e *entry, host runStream, start *berthv1.RunStart, heard time.Time) error {
	begun := time.Now()
	r := s.newRelayedRun(e, host)
	r.repeated = start.GetRepeatedAfterNs() > 0
	defer r.cancel()
	switch {
	case !e.features.Has(workspace.FeatureCommands):
		return r.outcome(unsupported("run: this workspace runs no commands"))
	case start.Script != nil && !e.features.Has(workspace.FeatureShell):
		return r.outcome(unsupported("run: this workspace has no shell for a script"))
	case start.GetDetached() && !e.features.Has(workspace.FeatureAttachRun):
		return r.outcome(unsupported("run: detached"))
	}
	state, err := s.configured()
	if err != nil {
		return err
	}
	connecting := r.ctx
	timeout := time.Duration(start.GetTimeoutNs())
	if timeout > 0 {
		var cancel context.CancelFunc
		connecting, cancel = context.WithTimeout(r.ctx, timeout)
		defer cancel()
		r.full = time.Duration(max(start.GetFullTimeoutNs(), start.GetTimeoutNs()))
		timer := time.AfterFunc(timeout+guestStopWait, func() {
			r.stop(stopCause{err: func(string) error {
				return &workspace.TimeoutError{Timeout: r.full, Survivors: fmt.Sprintf("the guest in workspace %s has not told its end %v later", e.id, guestStopWait)}
			}})
		})
		defer timer.Stop()
	}
	return r.relay(connecting, func(key *berthv1.WorkspaceKey) *berthv1.RunRequest {
		return &berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: &berthv1.RunStart{
			Workspace: key, RunId: start.GetRunId(), Args: start.GetArgs(), Script: start.Script, Dir: start.GetDir(),
			Env:       slices.Concat(wire.FromEnv(withEnviron(e.ws, state.env)), start.GetEnv()), // later ones win
			TimeoutNs: remaining(start.GetTimeoutNs(), begun), FullTimeoutNs: start.GetFullTimeoutNs(),
			OutputLimit: start.GetOutputLimit(), Stdin: start.GetStdin(), Detached: start.GetDetached(),
			RepeatedAfterNs: older(start.GetRepeatedAfterNs(), heard), RunRegistry: start.GetRunRegistry(),
		}}}
	}, berthv1.ProviderClient.Run)
}

// remaining is what is left of a timeout that counts since begun, at least 1; none
// stays none.
func remaining(timeout int64, begun time.Time) int64 {
	if timeout == 0 {
		return 0
	}
	return max(timeout-int64(time.Since(begun)), 1)
}

// older is the age of a start that was sent before; one that was not has none.
func older(age int64, heard time.Time) int64 {
	if age == 0 {
		return 0
	}
	return age + int64(time.Since(heard))
}

// relayAttach takes up a run of the guest's again.
func (s *server) relayAttach(e *entry, host runStream, attach *berthv1.RunAttach) error {
	if !e.features.Has(workspace.FeatureAttachRun) {
		return unsupported("attaching to a run: this workspace keeps none")
	}
	r := s.newRelayedRun(e, host)
	defer r.cancel()
	r.attaching, r.takenAnew = true, true
	r.received = [2]int64{stdout: attach.GetStdoutOffset(), stderr: attach.GetStderrOffset()}
	r.taken = r.received
	return r.relay(r.ctx, func(key *berthv1.WorkspaceKey) *berthv1.RunRequest {
		return &berthv1.RunRequest{Message: &berthv1.RunRequest_Attach{Attach: &berthv1.RunAttach{
			Workspace: key, RunId: attach.GetRunId(), StdoutOffset: attach.GetStdoutOffset(), StderrOffset: attach.GetStderrOffset(),
		}}}
	}, berthv1.ProviderClient.AttachRun)
}

// relay opens the stream to the guest and carries messages until one side ends.
//
//nolint:contextcheck // a run goes by its own context; connecting is for its beginning
func (r *relayedRun) relay(connecting context.Context, first func(*berthv1.WorkspaceKey) *berthv1.RunRequest,
	open func(berthv1.ProviderClient, context.Context, ...grpc.CallOption) (guestRunStream, error),
) error {
	s := r.call.server
	done, err := s.runs.addRelayed(r.entry.id, r)
	if err != nil {
		return r.end(err)
	}
	defer done()
	defer s.watchRun(r.entry, &r.stopper)()
	if r.call, err = s.guest(connecting, r.entry); err != nil {
		if errors.Is(connecting.Err(), context.DeadlineExceeded) && r.ctx.Err() == nil {
			return r.outcome(&workspace.TimeoutError{Timeout: r.full})
		}
		return r.notSent(err)
	}
	defer r.call.release()
	defer r.leave() // before the release
	if r.guest, err = open(r.call.conn.Client, r.ctx, guestLimit); err != nil {
		return r.notSent(r.call.failure(r.ctx, err))
	}
	if err := r.guest.Send(first(r.call.conn.Key)); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv tells
		return r.end(r.call.failure(r.ctx, err))
	}
	s.goSafely("relaying a run", r.fromHost)
	for {
		m, err := r.guest.Recv()
		if errors.Is(err, io.EOF) {
			return r.end(r.call.nonsense("a command without its outcome"))
		}
		if err != nil {
			return r.end(r.call.failure(r.ctx, err))
		}
		out, err := r.accept(m)
		if err != nil {
			return r.end(err)
		}
		if out == nil {
			continue
		}
		if err := r.host.Send(out); err != nil {
			return err
		}
		if out.GetOutcome() != nil {
			r.awaitTaken()
			return nil // whatever the guest says after it
		}
	}
}

// leave breaks the stream to the guest, if it has not ended.
func (r *relayedRun) leave() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bound != nil {
		r.bound.Stop()
	}
}

// awaitTaken lets the host's word that it took the outcome reach the guest, which
// then ends its stream. A host may take its time, a guest may not.
func (r *relayedRun) awaitTaken() {
	r.mu.Lock()
	r.over = true
	r.boundEnd()
	r.mu.Unlock()
	for {
		if _, err := r.guest.Recv(); err != nil {
			return
		}
	}
}

// hostIsDone notes that the host says nothing more that matters.
func (r *relayedRun) hostIsDone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hostDone = true
	r.boundEnd()
}

// boundEnd sets a bound to the guest's end once nothing else is waited for. The
// caller holds r.mu.
func (r *relayedRun) boundEnd() {
	if r.over && r.hostDone && r.bound == nil {
		r.bound = time.AfterFunc(guestEndWait, r.cancel)
	}
}

// end answers for a stream that ended before its outcome.
func (r *relayedRun) end(err error) error {
	select {
	case <-r.stopCh:
		err = r.cause.err("")
		if !errors.Is(err, workspace.ErrTransient) {
			return r.outcome(err)
		}
	default:
		if r.host.Context().Err() != nil {
			return context.Cause(r.host.Context())
		}
	}
	if isUnavailable(err) {
		r.call.server.cache.forget(r.entry)
	}
	return err
}

// notSent answers for a run that the guest has not heard of. Of a start that is the
// outcome: nothing was run, and nothing need be looked for. One that was sent before
// may be running.
func (r *relayedRun) notSent(err error) error {
	err = r.end(err)
	if r.attaching || r.repeated || err == nil || r.host.Context().Err() != nil || errors.Is(err, errClosingRelay) {
		return err
	}
	return r.outcome(err)
}

// outcome ends the run with an error of its own.
func (r *relayedRun) outcome(err error) error {
	r.mu.Lock()
	outcome := &berthv1.RunOutcome{
		Result:    &berthv1.RunOutcome_Error{Error: r.call.server.redactor.detail(wire.ToDetail(err))},
		StdoutEnd: r.received[stdout], StderrEnd: r.received[stderr],
	}
	r.mu.Unlock()
	return r.host.Send(&berthv1.RunResponse{Message: &berthv1.RunResponse_Outcome{Outcome: outcome}})
}

// fromHost hands on what the host says until its stream ends.
func (r *relayedRun) fromHost() {
	for {
		m, err := r.host.Recv()
		if errors.Is(err, io.EOF) {
			_ = r.guest.CloseSend() // Recv tells how that goes on
			r.hostIsDone()
			return
		}
		if err != nil {
			r.cancel()
			return
		}
		switch m := m.GetMessage().(type) {
		case *berthv1.RunRequest_Start, *berthv1.RunRequest_Attach:
			r.stop(stopInvalid(fmt.Errorf("a second first message: %w", workspace.ErrInvalid)))
			return
		case *berthv1.RunRequest_Stdin:
			r.mu.Lock()
			r.stdinSent = max(r.stdinSent, m.Stdin.GetOffset()+int64(len(m.Stdin.GetData())))
			r.mu.Unlock()
		case *berthv1.RunRequest_Taken:
			r.hostTook(m.Taken)
		case nil: // of a newer version: not announced, so not meant for us
			continue
		}
		if r.guest.Send(m) != nil {
			return // Recv tells
		}
		if m.GetTaken().GetOutcome() {
			r.hostIsDone()
		}
	}
}
