package observability_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestAttachIsInTheTrace of who attaches, with the calls of the provider below it;
// and nothing that succeeds is told as an error, though the host leaves each stream
// as soon as it has its answer.
func TestAttachIsInTheTrace(t *testing.T) {
	c := export(t, "grpc")
	exporter := tracer(t)
	root := t.TempDir()
	observed := func(c *host.Config, p *host.Provider) {
		c.TracerProvider, p.Config = exporter.Provider(), map[string]any{"root": root}
	}
	_, made := open(t, current, observed)
	if err := made.WriteFile(t.Context(), "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	ref, _ := made.Ref()
	again, _ := open(t, current, observed)
	ws, err := again.Attach(ref)
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := exporter.Tracer("test").Start(t.Context(), "again")
	if _, err := ws.ReadDir(ctx, "."); err != nil {
		t.Error(err)
	}
	if _, err := ws.ReadFile(ctx, "a"); err != nil {
		t.Error(err)
	}
	if _, err := ws.Run(ctx, workspace.Command{Args: []string{"true"}}); err != nil {
		t.Error(err)
	}
	if _, err := ws.Stat(ctx, "a"); err != nil {
		t.Error(err)
	}
	span.End()

	const ours, theirs, call = embedder + ":", wire.BinaryPrefix + current + ":", "berth.v1.Provider/"
	c.Await(t, ours+"again", ours+"readdir "+current, ours+"attach "+current, ours+call+"Attach", theirs+call+"Attach", theirs+"look")
	for operation, method := range map[string]string{"readdir": "ReadDir", "read": "ReadFile", "run": "Run", "stat": "Stat"} {
		c.Await(t, ours+"again", ours+operation+" "+current, ours+call+method, theirs+call+method)
	}
	c.Await(t, ours+"create "+current, ours+call+"Create")
	if failed := c.Failed(); len(failed) > 0 {
		t.Errorf("spans of what succeeded are errors: %v", failed)
	}

	// One that is given up is told as that, where it was begun.
	given, cancel := context.WithCancel(t.Context())
	_, err = ws.Run(given, workspace.Command{Script: "echo; exec sleep 60", Stdout: cutter{cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a command that was given up: %v", err)
	}
	for deadline := time.Now().Add(patience); !slices.Equal(c.Failed(), []string{ours + "run " + current}); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("spans that are errors: %v", c.Failed())
		}
	}
}

// cutter cancels at the first output.
type cutter struct{ cancel func() }

func (c cutter) Write(p []byte) (int, error) {
	c.cancel()
	return len(p), nil
}
