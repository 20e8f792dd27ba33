//go:build docker

package docker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestEngine_ThatIsAwayIsTransientAndComesBack(t *testing.T) {
	t.Parallel()
	engine := newProxy(t)
	b := newBedBehind(t, engine.address(), "busybox", nil)
	ws := b.open(t)
	output(t, ws, "echo here >f")
	p, err := ws.Start(t.Context(), workspace.Command{Script: "echo ready; sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	engine.cut()
	if _, err := p.Wait(); err == nil {
		t.Error("a command whose engine went away has a result")
	}
	fresh, err := b.host.Workspace(b.provider)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = fresh.WorkingDir(t.Context())
	if !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), engine.path) {
		t.Errorf("a create without an engine: %v, want ErrTransient with its address", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("that took %v", took)
	}
	engine.start(t)
	eventually(t, "the workspace answers again", func() bool {
		data, err := ws.ReadFile(t.Context(), "f")
		return err == nil && string(data) == "here\n"
	})
	if _, err := fresh.WorkingDir(t.Context()); err != nil {
		t.Errorf("the create, tried again: %v", err)
	}
}

// callTimeout is the provider's own deadline for a call that changes nothing.
const callTimeout = 30 * time.Second

func TestEngine_ThatNeverAnswersIsTransientInTime(t *testing.T) {
	t.Parallel()
	engine := newProxy(t)
	b := newBedBehind(t, engine.address(), "busybox", nil)
	b.open(t)
	engine.wedge(true)
	defer engine.wedge(false)
	began := time.Now()
	ws, err := b.host.Workspace(b.provider)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ws.WorkingDir(t.Context())
	if !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "not answered") {
		t.Errorf("a create on an engine that does not answer: %v, want ErrTransient that says so", err)
	}
	if took := time.Since(began); took > callTimeout+20*time.Second {
		t.Errorf("that took %v, want about %v", took, callTimeout)
	}
}
