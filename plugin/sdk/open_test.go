package sdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const token = "berth-0123456789abcdef"

func TestCreate(t *testing.T) {
	ws := newClosable("one")
	ws.id = "a name/with \xff"
	provider := providing(ws)
	provider.labels = true
	var seen CreateRequest
	provider.create = func(ctx context.Context, req CreateRequest) (Workspace, error) {
		seen = req
		for i := range int64(100) {
			Report(ctx, Progress{Text: "pulling", Done: i, Total: 99, Unit: "bytes"})
		}
		return ws, nil
	}
	provider.attach = func(context.Context, string) (Workspace, error) { return nil, errors.New("it is cached") }
	client := serveProvider(t, provider)
	stream, err := client.Create(t.Context(), &berthv1.CreateRequest{
		Token: token, Name: "conv-1", Labels: map[string]string{"a": "b"}, Overrides: []byte(`{"image":"x"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var last *berthv1.Progress
	var opened *berthv1.Opened
	for opened == nil {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if p := m.GetProgress(); p != nil {
			if last != nil && p.GetDone() <= last.GetDone() {
				t.Errorf("progress went from %d to %d", last.GetDone(), p.GetDone())
			}
			last = p
		}
		opened = m.GetOpened()
	}
	if last.GetDone() != 99 || string(last.GetText()) != "pulling" || last.GetUnit() != "bytes" {
		t.Errorf("last progress %v", last)
	}
	if seen.Key() != "conv-1" || seen.Token != token || seen.Labels["a"] != "b" || string(seen.Overrides) != `{"image":"x"}` {
		t.Errorf("request %+v", seen)
	}
	if opened.GetId() != "a%20name%2Fwith%20%FF" || string(opened.GetIncarnation()) != "one" || string(opened.GetWorkingDir()) != "/work" || fmt.Sprint(opened.GetFeatures()) != "[files]" {
		t.Errorf("opened %v", opened)
	}
	if err := statKey(t, client, &berthv1.WorkspaceKey{Id: opened.GetId(), Incarnation: opened.GetIncarnation()}); err != nil {
		t.Errorf("what was created is not cached: %v", err)
	}
}

func TestCreateRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		req    *berthv1.CreateRequest
		labels bool
		want   error
	}{
		"no token":      {&berthv1.CreateRequest{}, true, workspace.ErrInvalid},
		"bad token":     {&berthv1.CreateRequest{Token: "berth-0123"}, true, workspace.ErrInvalid},
		"bad name":      {&berthv1.CreateRequest{Token: token, Name: "A"}, true, workspace.ErrInvalid},
		"name a token":  {&berthv1.CreateRequest{Token: token, Name: token}, true, workspace.ErrInvalid},
		"label":         {&berthv1.CreateRequest{Token: token, Labels: map[string]string{"dev.berth.x": "y"}}, true, workspace.ErrInvalid},
		"no labels":     {&berthv1.CreateRequest{Token: token, Labels: map[string]string{"x": "y"}}, false, errors.ErrUnsupported},
		"its own error": {&berthv1.CreateRequest{Token: token}, false, workspace.ErrTransient},
	} {
		provider := providing(newBare())
		provider.labels = test.labels
		provider.create = func(context.Context, CreateRequest) (Workspace, error) { return nil, workspace.ErrTransient }
		client := serveProvider(t, provider)
		if _, err := openAll(client.Create(t.Context(), test.req)); !errors.Is(err, test.want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestCreateTellsNoSecretOfOverrides(t *testing.T) {
	provider := providing(newBare())
	provider.create = func(_ context.Context, req CreateRequest) (Workspace, error) {
		return nil, fmt.Errorf("the service refused %s: %w", req.Overrides, workspace.ErrInvalid)
	}
	client := serveProvider(t, provider)
	_, err := openAll(client.Create(t.Context(), &berthv1.CreateRequest{Token: token, Overrides: []byte(`{"env":{"KEY":"s3cret-value"}}`)}))
	mustBe(t, err, workspace.ErrInvalid)
	if text := err.Error(); strings.Contains(text, "s3cret") || !strings.Contains(text, `{"KEY":"[redacted]"}`) {
		t.Errorf("error %q", text)
	}
}

func TestTriesOfOneCreateFollowEachOther(t *testing.T) {
	var going, most, all atomic.Int64
	provider := providing(newBare())
	provider.create = func(context.Context, CreateRequest) (Workspace, error) {
		most.Store(max(most.Load(), going.Add(1)))
		defer going.Add(-1)
		all.Add(1)
		time.Sleep(time.Millisecond) // long enough for the others to come
		return newBare(), nil
	}
	client := serveProvider(t, provider)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			if _, err := openAll(client.Create(t.Context(), &berthv1.CreateRequest{Token: token})); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if most.Load() != 1 || all.Load() != 20 {
		t.Errorf("%d creates, %d at once", all.Load(), most.Load())
	}
}

func TestAttachAsksTheProvider(t *testing.T) {
	ws := newClosable("one")
	provider := providing(ws)
	client := serveProvider(t, provider)
	attach := func(k *berthv1.WorkspaceKey) (*berthv1.Opened, error) {
		return openAll(client.Attach(t.Context(), &berthv1.AttachRequest{Workspace: k}))
	}
	if opened, err := attach(incarnation("one")); err != nil || opened.GetId() != "ws" {
		t.Fatalf("opened %v, error %v", opened, err)
	}
	_, err := attach(incarnation("two"))
	mustBe(t, err, workspace.ErrUnavailable)
	_, err = attach(key("%41"))
	mustBe(t, err, workspace.ErrInvalid)
	provider.attach = func(context.Context, string) (Workspace, error) { return nil, workspace.ErrUnavailable }
	_, err = attach(key("ws")) // though it is cached
	mustBe(t, err, workspace.ErrUnavailable)
}

func TestAttachReportsToAllWhoWait(t *testing.T) {
	provider := providing(nil)
	joined := make(chan struct{})
	provider.attach = func(ctx context.Context, _ string) (Workspace, error) {
		for { // until both have heard it
			Report(ctx, Progress{Text: "starting"})
			select {
			case <-joined:
				return newBare(), nil
			case <-time.After(time.Millisecond):
			}
		}
	}
	client := serveProvider(t, provider)
	var streams []grpc.ServerStreamingClient[berthv1.OpenResponse]
	for range 2 {
		stream, err := client.Attach(t.Context(), &berthv1.AttachRequest{Workspace: key("ws")})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
		if m, err := stream.Recv(); err != nil || string(m.GetProgress().GetText()) != "starting" {
			t.Fatalf("received %v, error %v", m, err)
		}
	}
	close(joined)
	for _, stream := range streams {
		if _, err := openAll(stream, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestReportElsewhereDoesNothing(t *testing.T) { Report(t.Context(), Progress{Text: "x"}) }

func TestDestroy(t *testing.T) {
	provider := providing(newClosable("one"))
	var destroyedID string
	provider.destroy = func(_ context.Context, id string) error { destroyedID = id; return nil }
	client := serveProvider(t, provider)
	if _, err := client.Destroy(t.Context(), &berthv1.DestroyRequest{Id: "a%2Fb"}); err != nil || destroyedID != "a/b" {
		t.Errorf("destroyed %q, error %v", destroyedID, err)
	}
	_, err := client.Destroy(t.Context(), &berthv1.DestroyRequest{Id: "a/b"})
	mustBe(t, fromCall(err), workspace.ErrInvalid)
	provider.destroy = func(context.Context, string) error { return workspace.ErrTransient }
	_, err = client.Destroy(t.Context(), &berthv1.DestroyRequest{Id: "ws"})
	mustBe(t, fromCall(err), workspace.ErrTransient)
	if err := statKey(t, client, key("ws")); err != nil {
		t.Errorf("after a destroy that failed: %v", err)
	}
}

func TestNoRunBeginsWhileItsWorkspaceIsDestroyed(t *testing.T) {
	provider := providing(starting(newFakeProcess()))
	entered, leave := make(chan struct{}), make(chan struct{})
	provider.destroy = func(context.Context, string) error { close(entered); <-leave; return errors.New("no") }
	client := serveProvider(t, provider)
	result := make(chan error, 1)
	go func() {
		_, err := client.Destroy(t.Context(), &berthv1.DestroyRequest{Id: "ws"})
		result <- err
	}()
	<-entered
	_, err := startRun(t, t.Context(), client, &berthv1.RunStart{}).wait()
	mustBe(t, err, workspace.ErrUnavailable)
	close(leave)
	if err := <-result; err == nil {
		t.Error("no error")
	}
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	call.send(stopMessage())
	_, _ = call.wait()
}
