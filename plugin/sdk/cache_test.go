package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// closable counts how often it was closed.
type closable struct {
	*memory
	closes atomic.Int64
}

func (c *closable) Close() error { c.closes.Add(1); return nil }

func newClosable(incarnation string) *closable {
	m := newMemory()
	m.incarnation = incarnation
	m.files["/work/a"] = &memoryFile{data: []byte("a"), mode: 0o644}
	return &closable{memory: m}
}

func statKey(t testing.TB, client berthv1.ProviderClient, k *berthv1.WorkspaceKey) error {
	_, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: k, Path: []byte("a")})
	return fromCall(err)
}

func incarnation(s string) *berthv1.WorkspaceKey {
	return &berthv1.WorkspaceKey{Id: "ws", Incarnation: []byte(s)}
}

func TestUnknownWorkspaceIsAttachedOnce(t *testing.T) {
	ws := newClosable("one")
	provider := providing(ws)
	var attaches atomic.Int64
	begin := make(chan struct{})
	provider.attach = func(_ context.Context, id string) (Workspace, error) {
		attaches.Add(1)
		<-begin
		if id != "ws" {
			t.Errorf("attaching to %q", id)
		}
		return ws, nil
	}
	client := serveProvider(t, provider)
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			if err := statKey(t, client, key("ws")); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the attach", func() bool { return attaches.Load() > 0 })
	close(begin)
	calls.Wait()
	if err := statKey(t, client, incarnation("one")); err != nil {
		t.Error(err)
	}
	if n := attaches.Load(); n != 1 {
		t.Errorf("%d attaches", n)
	}
	if ws.closes.Load() != 0 {
		t.Error("closed while cached")
	}
}

func TestWaiterThatIsCancelledLeavesAtOnce(t *testing.T) {
	ws := newClosable("one")
	provider := providing(ws)
	begin, canceled := make(chan struct{}), make(chan struct{})
	provider.attach = func(ctx context.Context, _ string) (Workspace, error) {
		context.AfterFunc(ctx, func() { close(canceled) })
		<-begin // whatever its context says
		return ws, nil
	}
	s := newServer(pluginOf(provider).definition(), hclogNull(), &redactor{})
	if _, err := s.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	client := connectServer(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := client.Stat(ctx, &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
		first <- err
	}()
	go func() { second <- statKey(t, client, key("ws")) }()
	eventually(t, "both wait", func() bool {
		s.cache.mu.Lock()
		defer s.cache.mu.Unlock()
		f := s.cache.flights["ws"]
		return f != nil && f.waiters == 2
	})
	cancel()
	if code := status.Code(<-first); code != codes.Canceled {
		t.Errorf("the cancelled one got %v", code)
	}
	select {
	case <-canceled:
		t.Error("the attach was cancelled while another waits for it")
	case err := <-second:
		t.Errorf("the other one got %v", err)
	default:
	}
	close(begin)
	if err := <-second; err != nil {
		t.Errorf("the other one got %v", err)
	}
}

func TestLastWaiterThatLeavesCancelsTheAttach(t *testing.T) {
	ws := newClosable("one")
	provider := providing(ws)
	var attaches atomic.Int64
	canceled := make(chan struct{})
	provider.attach = func(ctx context.Context, _ string) (Workspace, error) {
		if attaches.Add(1) > 1 {
			return ws, nil
		}
		<-ctx.Done()
		close(canceled)
		return nil, ctx.Err()
	}
	client := serveProvider(t, provider)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := client.Stat(ctx, &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")})
		result <- err
	}()
	eventually(t, "the attach", func() bool { return attaches.Load() == 1 })
	cancel()
	<-result
	<-canceled
	if err := statKey(t, client, key("ws")); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestL8_IncarnationIsChecked(t *testing.T) {
	old, current := newClosable("old"), newClosable("new")
	provider := providing(old)
	client := serveProvider(t, provider)
	if err := statKey(t, client, incarnation("old")); err != nil {
		t.Fatal(err)
	}
	// It is replaced: whoever knows the new one is served it, at once.
	var attaches atomic.Int64
	provider.attach = func(context.Context, string) (Workspace, error) { attaches.Add(1); return current, nil }
	if err := statKey(t, client, incarnation("new")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old one is closed", func() bool { return old.closes.Load() == 1 })
	mustBe(t, statKey(t, client, incarnation("old")), workspace.ErrUnavailable)
	if n := attaches.Load(); n != 2 {
		t.Errorf("%d attaches, want one for each that did not match", n)
	}
	if err := statKey(t, client, key("ws")); err != nil {
		t.Errorf("any incarnation: %v", err)
	}
	if current.closes.Load() != 0 {
		t.Error("the current one was closed, though the provider gave it again")
	}
}

func TestUnavailableIsForgotten(t *testing.T) {
	first, second := newClosable("one"), newClosable("one")
	first.fail = func(string, string) error { return fmt.Errorf("its engine restarted: %w", workspace.ErrUnavailable) }
	provider := providing(first)
	client := serveProvider(t, provider)
	err := statKey(t, client, key("ws"))
	mustBe(t, err, workspace.ErrUnavailable)
	var path *fs.PathError
	if !errors.As(err, &path) || path.Path != "a" {
		t.Errorf("error %#v", err)
	}
	eventually(t, "it is closed", func() bool { return first.closes.Load() == 1 })
	provider.attach = func(context.Context, string) (Workspace, error) { return second, nil }
	if err := statKey(t, client, key("ws")); err != nil {
		t.Error(err)
	}
}

func TestWorkspaceIsNotClosedWhileItIsUsed(t *testing.T) {
	ws := newClosable("one")
	entered, leave := make(chan struct{}), make(chan struct{})
	ws.fail = func(op, _ string) error {
		if op == "lstat" {
			close(entered)
			<-leave
		}
		return nil
	}
	// The lock of the fake must not be what keeps the others out.
	client := serveProvider(t, providing(ws))
	result := make(chan error, 1)
	go func() {
		_, err := client.Lstat(t.Context(), &berthv1.LstatRequest{Workspace: key("ws"), Path: []byte("a")})
		result <- err
	}()
	<-entered
	if _, err := client.Destroy(t.Context(), &berthv1.DestroyRequest{Id: "ws"}); err != nil {
		t.Fatal(err)
	}
	if ws.closes.Load() != 0 {
		t.Error("closed under a call")
	}
	close(leave)
	if err := <-result; err != nil {
		t.Error(err)
	}
	eventually(t, "it is closed", func() bool { return ws.closes.Load() == 1 })
}

func TestProviderThatMisbehavesOnAttach(t *testing.T) {
	other := newBare()
	other.id = "other"
	for name, attach := range map[string]func(context.Context, string) (Workspace, error){
		"nothing":   func(context.Context, string) (Workspace, error) { return nil, nil },
		"typed nil": func(context.Context, string) (Workspace, error) { return (*memory)(nil), nil },
		"panic":     func(context.Context, string) (Workspace, error) { panic("boom") },
		"another":   func(context.Context, string) (Workspace, error) { return other, nil },
		"no id":     func(context.Context, string) (Workspace, error) { return &bare{"", "i", "/"}, nil },
		"no dir":    func(context.Context, string) (Workspace, error) { return &bare{"ws", "i", ""}, nil },
		"relative":  func(context.Context, string) (Workspace, error) { return &bare{"ws", "i", "work"}, nil },
		"unclean":   func(context.Context, string) (Workspace, error) { return &bare{"ws", "i", "/work/../x"}, nil },
		"slash":     func(context.Context, string) (Workspace, error) { return &bare{"ws", "i", "/work/"}, nil },
		"bad error": func(context.Context, string) (Workspace, error) { return nil, (*fs.PathError)(nil) },
	} {
		provider := providing(nil)
		provider.attach = attach
		client := connect(t, quiet(pluginOf(provider)))
		if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
			t.Fatal(err)
		}
		if err := statKey(t, client, key("ws")); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := openAll(client.Attach(t.Context(), &berthv1.AttachRequest{Workspace: key("ws")})); err == nil {
			t.Errorf("%s: no error of Attach", name)
		}
	}
}

// openAll receives a Create or Attach: its progress, and what it opened.
func openAll(stream grpc.ServerStreamingClient[berthv1.OpenResponse], err error) (opened *berthv1.Opened, failed error) {
	if err != nil {
		return nil, fromCall(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && opened != nil {
			return opened, nil
		}
		if err != nil {
			return nil, fromCall(err)
		}
		if opened != nil {
			return nil, fmt.Errorf("%v came after opened", m)
		}
		opened = m.GetOpened()
	}
}
