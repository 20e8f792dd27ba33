package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/workspace"
)

// watch owns a running plugin until it has ended and nobody has it any more.
func (s *Supervisor) watch(p *plugin) {
	defer s.work.Done()
	if p.binary.Path != "" {
		s.work.Go(func() { _, _ = p.binary.Digest() }) // for Status
	}
	if p.backend.PID() != 0 && s.cfg.LivenessInterval > 0 {
		s.work.Go(func() { s.checkLiveness(p) })
	}
	<-p.backend.Exited()
	await(p.backend.Finished(), exitWait)
	s.noteEnd(p)
	s.awaitReleased(p)
	if err := p.backend.Close(); err != nil {
		s.logger.Error("plugin was not released", "error", err)
	}
}

// noteEnd tells everyone that the plugin is gone.
func (s *Supervisor) noteEnd(p *plugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.ended = true
	if p.refs == 0 {
		close(p.free)
	}
	if s.closed {
		return
	}
	why := "the plugin ended by itself"
	if reason := p.backend.Reason(); reason != "" {
		why = "the host ended the plugin: " + reason
	}
	err := &workspace.PluginError{
		Provider: s.cfg.Provider, Op: "serve", PID: p.backend.PID(),
		ExitStatus: p.backend.ExitStatus(), Stderr: p.backend.Stderr(), Reason: why,
	}
	s.backoff.died(time.Now(), time.Since(p.started))
	s.lastErr = err
	s.update(func(st *Status) {
		st.State, st.PID, st.Started, st.LastError = Failed, 0, time.Time{}, err
	})
	s.logger.Warn("plugin ended", "pid", err.PID, "status", err.ExitStatus, "reason", why, "calls", p.refs)
}

// awaitReleased waits until no caller has the plugin any more, so that their
// calls still get errors from its connection, or until a shutdown cuts them off.
func (s *Supervisor) awaitReleased(p *plugin) {
	select {
	case <-p.free:
	case <-s.cut:
	}
}

const (
	// livenessTicks divides an interval. Time is counted in ticks that this
	// process lived through: one that was stopped itself for a minute sees one
	// tick, not twelve checks that failed.
	livenessTicks = 10
	// livenessFailures in a row mean that the plugin hangs.
	livenessFailures = 3
)

// checkLiveness kills a plugin that has stopped to answer.
func (s *Supervisor) checkLiveness(p *plugin) {
	tick := time.NewTicker(max(s.cfg.LivenessInterval/livenessTicks, time.Millisecond))
	defer tick.Stop()
	health := grpc_health_v1.NewHealthClient(p.backend.Conn())
	for failures := 0; ; {
		if !ticks(tick, livenessTicks, p.backend.Exited(), nil) {
			return
		}
		if checkHealth(health, tick, p.backend.Exited()) {
			failures = 0
		} else {
			failures++
		}
		s.mu.Lock()
		if !p.ended && !s.closed {
			s.update(func(st *Status) {
				if st.State = Running; failures > 0 {
					st.State = Unresponsive
				}
			})
		}
		s.mu.Unlock()
		if failures == livenessFailures {
			p.backend.Kill(fmt.Sprintf("it did not answer %d health checks, %v apart", failures, s.cfg.LivenessInterval))
			return
		}
	}
}

// checkHealth makes one check, which may take livenessTicks. Any answer is one.
func checkHealth(health grpc_health_v1.HealthClient, tick *time.Ticker, exited <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(context.Background())
	answered := make(chan struct{})
	var err error
	go func() {
		defer close(answered)
		_, err = health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	}()
	ticks(tick, livenessTicks, exited, answered)
	cancel()
	<-answered // gRPC returns at once
	return err == nil || !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable
}

// ticks waits for n ticks, or until done; it returns false when stop is closed.
func ticks(tick *time.Ticker, n int, stop, done <-chan struct{}) bool {
	for range n {
		select {
		case <-tick.C:
		case <-done:
			return true
		case <-stop:
			return false
		}
	}
	return true
}
