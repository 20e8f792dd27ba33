package supervisor

import (
	"context"
	"fmt"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/events"
)

const (
	// livenessTicks divides an interval. Time is counted in ticks that this
	// process lived through: one that was stopped itself for a minute sees one
	// tick, not twelve checks that failed.
	livenessTicks = 10
	// livenessFailures in a row mean that the plugin hangs.
	livenessFailures = 3
)

// liveness asks a running plugin whether it still answers.
type liveness struct {
	health       grpc_health_v1.HealthClient
	tick         *time.Ticker
	exited, over <-chan struct{} // either one ends it
}

// checkLiveness kills a plugin that does not answer any more.
func (s *Supervisor) checkLiveness(p *plugin) {
	tick := time.NewTicker(max(s.cfg.LivenessInterval/livenessTicks, time.Millisecond))
	defer tick.Stop()
	l := liveness{
		health: grpc_health_v1.NewHealthClient(p.backend.Conn()),
		tick:   tick, exited: p.backend.Exited(), over: s.cut,
	}
	// A check that failed has taken an interval: the next one follows at once.
	for failures := 0; failures > 0 || l.wait(nil); {
		alive, ended := l.check()
		if ended {
			return
		}
		if alive {
			failures = 0
		} else {
			failures++
		}
		s.noteHealth(p, failures == 0)
		if failures == livenessFailures {
			p.backend.Kill(fmt.Sprintf("it did not answer %d health checks, %v apart", failures, s.cfg.LivenessInterval))
			return
		}
	}
}

func (s *Supervisor) noteHealth(p *plugin, healthy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.ended || s.closed || p != s.running {
		return
	}
	before := s.status.Load().State
	s.update(func(st *Status) {
		if st.State = Running; !healthy {
			st.State = Unresponsive
		}
	})
	switch after := s.status.Load().State; {
	case before == after:
	case healthy:
		s.cfg.Events.Add(events.Responsive, fmt.Sprintf("pid %d", p.backend.PID()))
	default:
		s.cfg.Events.Add(events.Unresponsive, fmt.Sprintf("pid %d missed a health check", p.backend.PID()))
	}
}

// check makes one health check, which takes an interval if it fails. Any answer
// of a server is one. ended says that there is nothing more to check.
func (l liveness) check() (alive, ended bool) {
	ctx, cancel := context.WithCancel(context.Background()) // its deadline is counted in ticks
	answered := make(chan struct{})
	var err error
	go func() {
		defer close(answered)
		_, err = l.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	}()
	ended = !l.wait(answered)
	cancel()
	<-answered // gRPC returns at once
	switch status.Code(err) {
	case codes.Canceled: // by us, after an interval
		return false, ended
	case codes.Unavailable: // at once: a connection may come back within the interval
		return false, ended || !l.wait(nil)
	}
	return true, ended
}

// wait waits for an interval, or until done. It returns false when there is
// nothing more to check.
func (l liveness) wait(done <-chan struct{}) bool {
	for range livenessTicks {
		select {
		case <-l.tick.C:
		case <-done:
			return true
		case <-l.exited:
			return false
		case <-l.over:
			return false
		}
	}
	return true
}
