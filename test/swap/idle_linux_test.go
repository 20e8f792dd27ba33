package swap

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

func idleAfter(d time.Duration) func(*host.Config, *host.Provider) {
	return func(_ *host.Config, p *host.Provider) { p.IdleTimeout = d }
}

func TestAnIdlePluginIsStoppedAndStartedByTheNextCall(t *testing.T) {
	for _, plugin := range []string{plain, lasting} {
		t.Run(plugin, func(t *testing.T) {
			b := newBed(t, plugin, idleAfter(300*time.Millisecond))
			ws := b.workspace(t)
			// What is under way is no idleness, however long it says nothing.
			stdin, in := io.Pipe()
			p, err := ws.Start(t.Context(), workspace.Command{Script: "read -r line; echo done", Stdin: stdin})
			if err != nil {
				t.Fatal(err)
			}
			stops := func() int { return strings.Count(strings.Join(b.kinds(t), " "), "idle-stop") }
			before := stops()
			time.Sleep(time.Second) // far longer than it may be idle
			if n := stops() - before; n > 0 {
				t.Errorf("stopped in mid-run: %v", b.kinds(t))
			}
			_ = in.Close()
			if res, err := p.Wait(); err != nil || string(res.Stdout) != "done\n" {
				t.Errorf("%+v, %v", res, err)
			}
			for i := range 3 {
				poll(t, "it to be stopped", func() bool { st := b.status(); return st.State == "stopped" && st.PID == 0 })
				b.alone(t)
				if err := ws.WriteFile(t.Context(), "f", []byte{byte('0' + i)}); err != nil {
					t.Error(err)
				}
			}
			if st := b.status(); st.Restarts != 0 || st.LastError != "" {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestADetachedRunOutlivesAnIdlePlugin and is found by the next one.
func TestADetachedRunOutlivesAnIdlePlugin(t *testing.T) {
	b := newBed(t, lasting, idleAfter(200*time.Millisecond))
	ws := b.workspace(t)
	ctx := t.Context()
	p, err := ws.Start(ctx, workspace.Command{Detached: true, Script: "while [ ! -e stop ]; do sleep 0.02; done; echo went on; exit 4"})
	if err != nil {
		t.Fatal(err)
	}
	// Another program's run, as far as this host goes: nobody follows it here.
	follower, err := ws.(workspace.Runs).AttachRun(ctx, p.ID(), workspace.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err == nil {
		t.Error("two follow it")
	}
	if st := b.status(); st.InFlight == 0 {
		t.Errorf("%+v", st)
	}
	if err := ws.WriteFile(ctx, "stop", nil); err != nil {
		t.Fatal(err)
	}
	if res, err := follower.Wait(); err != nil || res.ExitCode != 4 || string(res.Stdout) != "went on\n" {
		t.Errorf("%+v, %v", res, err)
	}
	poll(t, "it to be stopped", func() bool { return b.status().State == "stopped" })
	b.alone(t)
}
