package sdk

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// stopping is a provider that stops workspaces and reads those that are stopped.
type stopping struct {
	*fakeProvider
	stops  func(ctx context.Context, id string) error
	stored func(ctx context.Context, id string) (Stored, error)
}

func (p *stopping) Stop(ctx context.Context, id string) error { return p.stops(ctx, id) }
func (p *stopping) OpenStored(ctx context.Context, id string) (Stored, error) {
	return p.stored(ctx, id)
}

func TestStopEndsCommandsAndTheNextCallAttaches(t *testing.T) {
	process := newFakeProcess()
	ws := starting(process)
	provider := &stopping{fakeProvider: providing(ws)}
	attaches := 0
	provider.attach = func(context.Context, string) (Workspace, error) { attaches++; return ws, nil }
	var asked string
	provider.stops = func(_ context.Context, id string) error {
		asked = id
		if len(process.stopped()) == 0 {
			t.Error("the workspace was stopped before its command")
		}
		return nil
	}
	client := serveProvider(t, provider)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	if _, err := client.Stop(t.Context(), &berthv1.StopRequest{Id: "ws"}); err != nil || asked != "ws" {
		t.Fatalf("stop of %q: %v", asked, err)
	}
	_, err := call.wait()
	mustBe(t, err, workspace.ErrUnavailable)
	if !strings.Contains(err.Error(), "stopped") {
		t.Errorf("the command's end does not say why: %v", err)
	}
	again := startRun(t, t.Context(), client, &berthv1.RunStart{})
	again.until("started", func() bool { return again.started })
	if attaches != 2 {
		t.Errorf("attached %d times, want once before the stop and once after", attaches)
	}
	again.send(stopMessage())
	_, _ = again.wait()
}

func TestStopThatIsRefused(t *testing.T) {
	provider := &stopping{fakeProvider: providing(newBare()), stops: func(context.Context, string) error { return errors.ErrUnsupported }}
	client := serveProvider(t, provider)
	_, err := client.Stop(t.Context(), &berthv1.StopRequest{Id: "ws"})
	mustBe(t, fromCall(err), errors.ErrUnsupported)
	_, err = client.Stop(t.Context(), &berthv1.StopRequest{Id: "a/b"})
	mustBe(t, fromCall(err), workspace.ErrInvalid)
	without := serveProvider(t, providing(newBare()))
	_, err = without.Stop(t.Context(), &berthv1.StopRequest{Id: "ws"})
	mustBe(t, fromCall(err), errors.ErrUnsupported)
}

func TestStoredFilesAreOpenedForEachCallAndNeverAttached(t *testing.T) {
	memory := newMemory()
	memory.files["/work/f"] = &memoryFile{data: []byte("kept")}
	provider := &stopping{fakeProvider: providing(memory)}
	provider.attach = func(context.Context, string) (Workspace, error) {
		t.Error("attached")
		return nil, workspace.ErrUnavailable
	}
	opened := 0
	provider.stored = func(_ context.Context, id string) (Stored, error) {
		opened++
		if id != "ws" {
			return nil, workspace.ErrUnavailable
		}
		return memory, nil
	}
	client := serveProvider(t, provider)
	stored := func(id, incarnation string) *berthv1.WorkspaceKey {
		return &berthv1.WorkspaceKey{Id: id, Incarnation: []byte(incarnation), Stored: true}
	}
	for range 2 {
		if _, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: stored("ws", ""), Path: []byte("f")}); err != nil {
			t.Fatal(err)
		}
	}
	if opened != 2 {
		t.Errorf("opened %d times", opened)
	}
	for name, test := range map[string]struct {
		key  *berthv1.WorkspaceKey
		want error
	}{
		"gone":     {stored("none", ""), workspace.ErrUnavailable},
		"replaced": {stored("ws", "another"), workspace.ErrUnavailable},
		"no id":    {stored("a/b", ""), workspace.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: test.key, Path: []byte("x")})
			mustBe(t, fromCall(err), test.want)
		})
	}
	_, err := client.MkdirAll(t.Context(), &berthv1.MkdirAllRequest{Workspace: stored("ws", ""), Path: []byte("d")})
	mustBe(t, fromCall(err), workspace.ErrReadOnly)
	_, err = client.Remove(t.Context(), &berthv1.RemoveRequest{Workspace: stored("ws", ""), Path: []byte("d")})
	mustBe(t, fromCall(err), workspace.ErrReadOnly)
	_, err = client.Rename(t.Context(), &berthv1.RenameRequest{Workspace: stored("ws", ""), From: []byte("d"), To: []byte("e")})
	mustBe(t, fromCall(err), errors.ErrUnsupported)
	_, err = startRun(t, t.Context(), client, &berthv1.RunStart{Workspace: stored("ws", "")}).wait()
	mustBe(t, err, errors.ErrUnsupported)
	without := serveProvider(t, providing(memory))
	_, err = without.Stat(t.Context(), &berthv1.StatRequest{Workspace: stored("ws", ""), Path: []byte("x")})
	mustBe(t, fromCall(err), errors.ErrUnsupported)
}
