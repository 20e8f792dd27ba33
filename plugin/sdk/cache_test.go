package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func TestListFilters(t *testing.T) {
	infos := []Info{
		{ID: "a/b", Name: "n", Labels: map[string]string{"k": "v", "l": "w"}, Created: time.Now().Add(-time.Hour), State: "run\xffning", Details: map[string]string{"image": "x"}},
		{ID: "young", Labels: map[string]string{"k": "v"}, Created: time.Now()},
		{ID: "ageless", Labels: map[string]string{"k": "v"}},
		{ID: "other", Labels: map[string]string{"k": "w"}, Created: time.Now().Add(-time.Hour)},
	}
	provider := providing(newBare())
	var failure error
	provider.list = func(context.Context, workspace.ListOptions) iter.Seq2[Info, error] {
		return func(yield func(Info, error) bool) {
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if failure != nil {
				yield(Info{}, failure)
			}
		}
	}
	client := serveProvider(t, provider)
	list := func(req *berthv1.ListRequest) (ids []string, last *berthv1.ListResponse, err error) {
		stream, err := client.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return ids, last, nil
			}
			if err != nil {
				return ids, last, fromCall(err)
			}
			ids, last = append(ids, m.GetId()), m
		}
	}
	for _, test := range []struct {
		req  *berthv1.ListRequest
		want string
	}{
		{&berthv1.ListRequest{}, "[a%2Fb young ageless other]"},
		{&berthv1.ListRequest{Labels: map[string]string{"k": "v"}}, "[a%2Fb young ageless]"},
		{&berthv1.ListRequest{Labels: map[string]string{"k": "v", "l": "w"}}, "[a%2Fb]"},
		{&berthv1.ListRequest{Labels: map[string]string{"missing": ""}}, "[]"},
		{&berthv1.ListRequest{OlderThanNs: int64(time.Minute)}, "[a%2Fb other]"},
		{&berthv1.ListRequest{OlderThanNs: 1, Labels: map[string]string{"k": "w"}}, "[other]"},
	} {
		if ids, _, err := list(test.req); err != nil || fmt.Sprint(ids) != test.want {
			t.Errorf("%v: %v, error %v, want %s", test.req, ids, err, test.want)
		}
	}
	_, info, _ := list(&berthv1.ListRequest{Labels: map[string]string{"l": "w"}})
	if info.GetName() != "n" || info.GetState() != "run\uFFFDning" || info.GetDetails()["image"] != "x" || info.GetCreated().GetSeconds() == 0 {
		t.Errorf("listed %v", info)
	}
	_, _, err := list(&berthv1.ListRequest{OlderThanNs: -1})
	mustBe(t, err, workspace.ErrInvalid)
	failure = workspace.ErrTransient
	ids, _, err := list(&berthv1.ListRequest{})
	mustBe(t, err, workspace.ErrTransient)
	if len(ids) != 4 {
		t.Errorf("listed %v before the error", ids)
	}
}

// unlisted hides List.
type unlisted struct{ Provider }

func TestListIsAFeature(t *testing.T) {
	stream, err := serveProvider(t, unlisted{providing(newBare())}).List(t.Context(), &berthv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	mustBe(t, fromCall(err), errors.ErrUnsupported)
}

func TestCloseGivesEverythingBack(t *testing.T) {
	process := newFakeProcess()
	ws := &struct {
		*runner
		*atomic.Int64
	}{starting(process), &atomic.Int64{}}
	provider := providing(ws)
	var closed atomic.Bool
	provider.closed = func() error { closed.Store(true); return nil }
	s := newServer(pluginOf(provider).definition(), hclogNull(), &redactor{})
	if _, err := s.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	client := connectServer(t, s)
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("started", func() bool { return call.started })
	s.close(closeStopGrace)
	if _, err := call.wait(); err == nil || !strings.Contains(err.Error(), errClosing.Error()) {
		t.Errorf("the run ended with %v", err)
	}
	if !closed.Load() {
		t.Error("the provider is open")
	}
	if _, err := startRun(t, t.Context(), client, &berthv1.RunStart{}).stream.Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a run after that: %v", err)
	}
}
