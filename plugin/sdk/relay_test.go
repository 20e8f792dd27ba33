package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/internal/relay"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// allFeatures are those of a workspace whose guest has everything.
var allFeatures = []workspace.Feature{
	workspace.FeatureCommands, workspace.FeatureShell, workspace.FeatureFiles, workspace.FeatureRename, workspace.FeatureSymlink,
	workspace.FeatureChmod, workspace.FeatureChtimes, workspace.FeatureExclusive, workspace.FeatureAppend, workspace.FeatureAttachRun,
}

// guarded is a workspace with a guest.
type guarded struct {
	*bare
	client   berthv1.ProviderClient
	features []workspace.Feature
	connect  func(ctx context.Context) error    // nil: it is connected
	explain  func(context.Context, error) error // nil: what the SDK says itself
	watch    func(ctx context.Context) error    // nil: it stays
	held     atomic.Int64                       // connections in use
	wrap     func(conn *relay.Conn) *relay.Conn // nil: as it is
	registry []byte                             // as the guest told it
}

var _ relay.Target = (*guarded)(nil)

func (w *guarded) RunRegistry() []byte { return w.registry }

func (w *guarded) Announce() []workspace.Feature { return w.features }

func (w *guarded) BerthRelay(ctx context.Context) (*relay.Conn, error) {
	if w.connect != nil {
		if err := w.connect(ctx); err != nil {
			return nil, err
		}
	}
	w.held.Add(1)
	conn := &relay.Conn{
		Client: w.client, Key: &berthv1.WorkspaceKey{Id: "inside", Incarnation: []byte("boot-1")},
		Explain: w.explain, Release: func() { w.held.Add(-1) },
	}
	if w.wrap != nil {
		return w.wrap(conn), nil
	}
	return conn, nil
}

func (w *guarded) Watch(ctx context.Context) error {
	if w.watch != nil {
		return w.watch(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// inside is a provider of the one workspace that a guest has.
func inside(ws Workspace) *fakeProvider {
	p := providing(ws)
	p.attach = func(_ context.Context, id string) (Workspace, error) {
		if id != "inside" {
			return nil, fmt.Errorf("workspace %s: %w", id, workspace.ErrUnavailable)
		}
		return ws, nil
	}
	return p
}

func newInside() *bare { return &bare{id: "inside", incarnation: "boot-1", dir: "/inside"} }

// guardedBy is a workspace whose guest is an SDK's server over ws.
func guardedBy(t testing.TB, ws Workspace) *guarded {
	t.Helper()
	return &guarded{bare: newBare(), client: serveProvider(t, inside(ws)), features: allFeatures}
}

// checkReleased is for the end of a test.
func (w *guarded) checkReleased(t testing.TB) {
	t.Helper()
	eventually(t, "every connection is released", func() bool { return w.held.Load() == 0 })
}

func TestRelayedRun(t *testing.T) {
	process := newFakeProcess()
	var seen Command
	guest := starting(process, &seen)
	guest.bare = newInside()
	ws := guardedBy(t, guest)
	client := serveConfigured(t, providing(ws), `{"env":{"A":"configured","B":"configured"}}`)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{
		RunId: "the-run", Script: []byte("exit 7"), Dir: []byte("a/../b"), Stdin: true,
		Env: []*berthv1.EnvVar{{Name: []byte("B"), Value: []byte("call")}, {Name: []byte("\xff"), Value: []byte("\xfe")}},
	})
	call.until("started", func() bool { return call.started })
	if got := fmt.Sprint(seen.Args); got != "[/bin/sh -c exit 7]" || seen.Dir != "/inside/a/../b" || seen.RunID != "the-run" || !seen.Stdin {
		t.Errorf("command %+v", seen)
	}
	if len(seen.Env) != 3 || seen.Env["A"] != "configured" || seen.Env["B"] != "call" || seen.Env["\xff"] != "\xfe" {
		t.Errorf("environment %v", seen.Env)
	}
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Data: []byte("input")}}})
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_StdinEnd{StdinEnd: &berthv1.RunStdinEnd{Offset: 5}}})
	input, err := io.ReadAll(process.stdinR)
	if string(input) != "input" || err != nil {
		t.Errorf("input %q, %v", input, err)
	}
	call.until("stdin is taken", func() bool { return call.stdinTaken == 5 })
	call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: "TERM", Sequence: 9}}})
	call.until("the signal", func() bool { _, ok := call.signals[9]; return ok })
	const size = 3 << 20
	go func() {
		_, _ = process.stderrW.Write([]byte("to \xff stderr"))
		_, _ = process.stdoutW.Write(make([]byte, size))
		process.exit(7, nil)
	}()
	code, err := call.wait()
	if code != 7 || err != nil || len(call.out[stdout]) != size || string(call.out[stderr]) != "to \xff stderr" || call.signals[9] != nil {
		t.Errorf("code %d, error %v, %d bytes, stderr %q, signal %v", code, err, len(call.out[stdout]), call.out[stderr], call.signals[9])
	}
	ws.checkReleased(t)
}

// The features of a workspace with a guest are what it announces, and what the
// relay can carry.
func TestRelayedFeatures(t *testing.T) {
	ws := &guarded{bare: newBare(), features: []workspace.Feature{workspace.FeatureCommands, workspace.FeatureAttachRun, "teleport"}}
	if got := fmt.Sprint(wire.FromFeatures((&server{}).workspaceFeatures(ws))); got != "[attach-run commands]" {
		t.Errorf("features %s", got)
	}
	client := serveProvider(t, providing(ws))
	_, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
	mustBe(t, fromCall(err), errors.ErrUnsupported)
	_, err = startRun(t, t.Context(), client, &berthv1.RunStart{Script: []byte("true")}).wait()
	mustBe(t, err, errors.ErrUnsupported)
	ws.features = nil
	client = serveProvider(t, providing(ws))
	_, err = startRun(t, t.Context(), client, &berthv1.RunStart{}).wait()
	mustBe(t, err, errors.ErrUnsupported)
	_, err = collectRuns(t, client)
	mustBe(t, err, errors.ErrUnsupported)
}

func collectRuns(t testing.TB, client berthv1.ProviderClient) (runs []*berthv1.ListRunsResponse, err error) {
	t.Helper()
	stream, err := client.ListRuns(t.Context(), &berthv1.ListRunsRequest{Workspace: key("ws")})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return runs, nil
		}
		if err != nil {
			return runs, fromCall(err)
		}
		runs = append(runs, m)
	}
}
