package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// exitWait is how long an error waits for the end of a process whose connection
// broke. The kernel closes the socket first and tells the exit just after.
const exitWait = 500 * time.Millisecond

// Instance is a running plugin in the hands of one caller, until Release.
type Instance struct {
	s        *Supervisor
	plugin   *plugin
	released atomic.Bool
}

// Alive returns every plugin that runs: the one that serves first, and those that
// still finish what they have. It starts none and waits for nothing. Each instance is
// released once.
func (s *Supervisor) Alive() (list []*Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	plugins := slices.Collect(maps.Keys(s.leaving))
	if p := s.serving(); p != nil {
		plugins = slices.Insert(plugins, 0, p)
	}
	for _, p := range plugins {
		if p.freed || !p.alive() { // it is being ended
			continue
		}
		p.refs++
		s.calls.Add(1)
		list = append(list, &Instance{s: s, plugin: p})
	}
	return list
}

// Client makes calls to the plugin. After its death they fail with code
// Unavailable, as long as the instance is not released.
func (i *Instance) Client() berthv1.ProviderClient { return i.plugin.client }

// Describe is what the plugin told of itself.
func (i *Instance) Describe() *berthv1.DescribeResponse { return i.plugin.describe }

// Configured is its answer to the configuration; nil if it was not configured.
func (i *Instance) Configured() *berthv1.ConfigureResponse { return i.plugin.configured }

// PID is the plugin's process; zero in process.
func (i *Instance) PID() int { return i.plugin.backend.PID() }

// Binary is what was started; its zero value in process.
func (i *Instance) Binary() catalog.Binary { return i.plugin.binary }

// Exited is closed when the plugin has ended.
func (i *Instance) Exited() <-chan struct{} { return i.plugin.backend.Exited() }

// Leaving is closed when another plugin has taken this one's place: it goes on
// with the calls that it has until they are released, or until its time is over.
func (i *Instance) Leaving() <-chan struct{} { return i.plugin.leaving }

// Kill ends the plugin at once: the host gives up on it. Other callers' calls
// fail, with the reason.
func (i *Instance) Kill(reason string) { i.plugin.backend.Kill(reason) }

// Release gives the instance back. Only the first call counts.
func (i *Instance) Release() {
	if i.released.CompareAndSwap(false, true) {
		i.s.release(i.plugin)
	}
}

// Error makes the error of a call that failed for the plugin's sake, with all
// that is known of its end. It waits a moment for that if cause looks like it.
// Op is the call, runID the run it belongs to or empty.
func (i *Instance) Error(op, runID string, cause error, mayHaveExecuted bool) *workspace.PluginError {
	backend := i.plugin.backend
	if connectionLost(cause) {
		await(backend.Exited())
	}
	if exited(backend.Exited()) {
		await(backend.Finished())
	}
	return &workspace.PluginError{
		Provider:        i.s.cfg.Provider,
		Op:              op,
		RunID:           runID,
		PID:             backend.PID(),
		ExitStatus:      backend.ExitStatus(),
		Stderr:          backend.Stderr(),
		MayHaveExecuted: mayHaveExecuted,
		Reason:          i.s.redact(i.s.reason(backend, cause)),
	}
}

// Remote reads an error that a plugin told, without secrets: one that is not
// made with our SDK may put them anywhere (contract B7).
func Remote(detail *berthv1.ErrorDetail, redact func(string) string) error {
	clean := func(text []byte) []byte { return []byte(redact(string(text))) }
	detail.Message = clean(detail.GetMessage())
	if path := detail.GetPath(); path != nil {
		path.Message = clean(path.GetMessage())
	}
	if timeout := detail.GetTimeout(); timeout != nil {
		timeout.Survivors = clean(timeout.GetSurvivors())
	}
	if limit := detail.GetOutputLimit(); limit != nil {
		limit.Survivors = clean(limit.GetSurvivors())
	}
	if plugin := detail.GetPlugin(); plugin != nil {
		plugin.Reason = clean(plugin.GetReason())
		for i, line := range plugin.GetStderr() {
			plugin.Stderr[i] = clean(line)
		}
	}
	return wire.FromDetail(detail)
}

func (s *Supervisor) redact(text string) string {
	if s.cfg.Redact == nil {
		return text
	}
	return s.cfg.Redact(text)
}

// reason tells what happened to a call, in one phrase.
func (s *Supervisor) reason(b backend, cause error) string {
	why := b.Reason()
	switch code := status.Code(cause); {
	case exited(b.Exited()) && why != "":
		return "the host ended the plugin: " + why
	case exited(b.Exited()) && b.OutOfMemory() != "":
		return "the kernel ended the plugin: " + b.OutOfMemory()
	case exited(b.Exited()) && s.stopping.Load():
		return "the host was shut down during the call"
	case exited(b.Exited()):
		return "the plugin ended during the call"
	case code == codes.ResourceExhausted:
		return fmt.Sprintf("a message was larger than the cap of %d bytes: %v", wire.MaxMessage, status.Convert(cause).Message())
	case errors.Is(cause, context.DeadlineExceeded) || code == codes.DeadlineExceeded:
		return "the plugin did not answer in time"
	case connectionLost(cause):
		return "the connection to the plugin broke: " + text(cause)
	case cause == nil:
		return "the plugin failed"
	}
	return text(cause)
}

// text is an error's text without gRPC's wrapping.
func text(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Message()
	}
	return fmt.Sprint(err)
}

// connectionLost reports whether a call failed as it does when its peer dies.
func connectionLost(err error) bool {
	return status.Code(err) == codes.Unavailable || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func exited(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// await waits for what a process's end brings, but not long.
func await(ch <-chan struct{}) {
	timer := time.NewTimer(exitWait)
	defer timer.Stop()
	select {
	case <-ch:
	case <-timer.C:
	}
}
