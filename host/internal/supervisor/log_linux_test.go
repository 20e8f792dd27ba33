package supervisor

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/test/faults"
)

// gate is a log output that takes nothing until it is opened.
type gate struct {
	open chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(b)
}

func (g *gate) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

// A log that takes nothing holds up no call, no restart and no status.
func TestBlockedLoggerHoldsUpNobody(t *testing.T) {
	out := &gate{open: make(chan struct{})}
	cfg := testConfig(t, faults.Good)
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: out})
	s := supervise(t, cfg)
	defer close(out.open)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		inst, err := s.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := do(ctx, inst, "ping"); err != nil || answer != "pong" {
			t.Errorf("%q, %v", answer, err)
		}
		if _, err := do(ctx, inst, "exit/1"); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("exit: %v", err)
		}
		inst.Release()
		poll(t, "its end is known", func() bool { return s.Status().State == Failed })
	}
}

// What becomes of a plugin is in the log, under the provider's name.
func TestLifeIsLogged(t *testing.T) {
	out := &gate{open: make(chan struct{})}
	close(out.open)
	cfg := testConfig(t, faults.Good)
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: out})
	s := supervise(t, cfg)
	inst := acquire(t, s)
	_, _ = do(t.Context(), inst, "exit/3")
	poll(t, "all of it", func() bool {
		text := out.String()
		return strings.Contains(text, "test: plugin started: pid=") && strings.Contains(text, "these are my last words") &&
			strings.Contains(text, "test: plugin ended: ") && strings.Contains(text, `status="exit status 3"`)
	})
}

// A start that the host itself gives up is nothing to warn of.
func TestAStartThatIsGivenUpIsNoWarning(t *testing.T) {
	for name, giveUp := range map[string]func(s *Supervisor, cancel func()){
		"by who asked":    func(_ *Supervisor, cancel func()) { cancel() },
		"by the shutdown": func(s *Supervisor, _ func()) { _ = s.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			out := &gate{open: make(chan struct{})}
			close(out.open)
			bin := install(faults.Good)
			cfg := bin.config(t)
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: out})
			s := supervise(t, cfg)
			acquire(t, s).Release()
			bin.put(faults.Silent)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			reloaded := make(chan error, 1)
			go func() { reloaded <- s.Reload(ctx) }()
			poll(t, "the new one's process", func() bool { return len(childrenOf(t, faults.Silent)) == 1 })
			giveUp(s, cancel)
			if err := <-reloaded; err == nil {
				t.Error("it was not given up")
			}
			poll(t, "it is told", func() bool { return strings.Contains(out.String(), "given up") })
			if text := out.String(); strings.Contains(text, "[WARN]") {
				t.Errorf("%s", text)
			}
		})
	}
}
