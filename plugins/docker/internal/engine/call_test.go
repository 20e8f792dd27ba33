package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

func info(ctx context.Context, c *client.Client) error {
	_, err := c.Info(ctx)
	return err
}

func TestTheVersionIsAgreedOnOnce(t *testing.T) {
	f := newFake()
	f.route("/info", says(http.StatusOK, `{}`))
	e := openFake(t, f)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if err := e.Query(t.Context(), "asking", info); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := f.count("/_ping"); got != 1 {
		t.Errorf("it was asked for %d times", got)
	}
	if got := f.count("GET /v1.41/info"); got != 20 {
		t.Errorf("%d of 20 calls spoke it", got)
	}
	if got := e.Client().ClientVersion(); got != "1.41" {
		t.Errorf("the client speaks %s", got)
	}
}

func TestAnEngineThatDoesNotDo(t *testing.T) {
	for _, test := range []struct {
		name  string
		ping  http.HandlerFunc
		env   string // DOCKER_API_VERSION
		kind  error
		texts []string
	}{
		{name: "too old", kind: workspace.ErrInvalid, texts: []string{"1.39", "1.41", "20.10"}, ping: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.39") }},
		{name: "forced to be too old", env: "1.30", kind: workspace.ErrInvalid, texts: []string{"1.30", "1.41"}, ping: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.51") }},
		{name: "windows", kind: workspace.ErrInvalid, texts: []string{"windows", "linux"}, ping: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Api-Version", "1.51")
			w.Header().Set("Ostype", "windows")
		}},
		{name: "no engine", kind: workspace.ErrInvalid, texts: []string{"something other than a Docker Engine"}, ping: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }},
		{name: "a proxy", kind: workspace.ErrInvalid, texts: []string{"something other than a Docker Engine", "proxy"}, ping: says(http.StatusNotFound, "not here")},
		{name: "a proxy that wants a password", kind: workspace.ErrInvalid, texts: []string{"proxy"}, ping: says(http.StatusForbidden, "")},
		{name: "shutting down", kind: workspace.ErrTransient, texts: []string{"shutting down"}, ping: says(http.StatusServiceUnavailable, `{"message":"shutting down"}`)},
		{name: "behind a gateway", kind: workspace.ErrTransient, texts: []string{"bad gateway"}, ping: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			f.route("/_ping", test.ping)
			e := openFake(t, f)
			t.Setenv("DOCKER_API_VERSION", test.env)
			err := e.Query(t.Context(), "asking", info)
			if !errors.Is(err, test.kind) {
				t.Fatalf("it is %v", err)
			}
			if errdefs.IsNotFound(err) {
				t.Errorf("%v is taken for a container that is not there", err)
			}
			for _, text := range append(test.texts, "asking: ") {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not hold %q", err, text)
				}
			}
		})
	}
}

func TestAnOlderEngineTakesTheOthersPlace(t *testing.T) {
	f := newFake()
	version := "1.43"
	f.route("/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", version)
	})
	f.route("/info", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v"+version+"/") {
			says(http.StatusBadRequest, `{"message":"client version 1.43 is too new. Maximum supported API version is 1.41"}`)(w, r)
			return
		}
		says(http.StatusOK, `{}`)(w, r)
	})
	e := openFake(t, f)
	if err := e.Query(t.Context(), "asking", info); err != nil {
		t.Fatal(err)
	}
	version = "1.41"
	if err := e.Query(t.Context(), "asking", info); !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "older") {
		t.Errorf("the first call: %v", err)
	}
	if err := e.Query(t.Context(), "asking", info); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// calls are all the ways to use an engine.
var calls = map[string]func(context.Context, *Engine) error{
	"query":  func(ctx context.Context, e *Engine) error { return e.Query(ctx, "asking", info) },
	"change": func(ctx context.Context, e *Engine) error { return e.Change(ctx, "asking", info) },
	"stream": func(ctx context.Context, e *Engine) error {
		return e.Stream(ctx, e.callLimit, "asking", func(ctx context.Context, c *client.Client, _ func()) error { return info(ctx, c) })
	},
	"exec": func(ctx context.Context, e *Engine) error {
		_, err := e.Exec(ctx, "c", ExecOptions{Cmd: []string{"true"}})
		return err
	},
	"exit code": func(ctx context.Context, e *Engine) error {
		_, err := (&Exec{engine: e, id: "x1"}).ExitCode(ctx)
		return err
	},
	"wait": func(ctx context.Context, e *Engine) error {
		_, err := (&Exec{engine: e, id: "x1"}).Wait(ctx)
		return err
	},
}

func TestAWedgedEngineEndsEveryCall(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the client leave
		<-r.Context().Done()
	}
	for name, engine := range map[string]func(t *testing.T) *Engine{
		"that never answered": func(t *testing.T) *Engine { return openHost(t, "unix://"+wedged(t)) },
		"that answered before": func(t *testing.T) *Engine {
			f := newFake()
			f.route("/", hang)
			return openFake(t, f)
		},
		"that answers until the stream": func(t *testing.T) *Engine {
			f := newFake()
			f.route("/", hang)
			f.route("/containers/c/exec", says(http.StatusCreated, `{"Id":"x1"}`))
			return openFake(t, f)
		},
	} {
		for call, do := range calls {
			t.Run(call+" of one "+name, func(t *testing.T) {
				e := engine(t)
				e.callLimit, e.changeLimit = 30*time.Millisecond, 30*time.Millisecond
				within(t, func() {
					err := do(t.Context(), e)
					if !errors.Is(err, workspace.ErrTransient) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), e.Address()) || !strings.Contains(err.Error(), "has not answered") {
						t.Errorf("it is %v", err)
					}
				})
			})
			t.Run(call+" of one "+name+", given up", func(t *testing.T) {
				e := engine(t)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				within(t, func() {
					err := do(ctx, e)
					if !errors.Is(err, context.Canceled) || errors.Is(err, workspace.ErrTransient) {
						t.Errorf("it is %v", err)
					}
				})
			})
		}
	}
}

func TestACallerOfAWedgedEngineThatGivesUpIsNotHeldByAnother(t *testing.T) {
	e := openHost(t, "unix://"+wedged(t))
	other, giveUp := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = e.Query(other, "asking", info) })
	defer group.Wait()
	defer giveUp()
	within(t, func() {
		for len(e.checking) == 0 { // until the other holds it
			time.Sleep(time.Millisecond)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	within(t, func() {
		if err := e.Query(ctx, "asking", info); !errors.Is(err, context.Canceled) {
			t.Errorf("it is %v", err)
		}
	})
}

func TestAStreamLastsWhileItSaysSomething(t *testing.T) {
	f := newFake()
	e := openFake(t, f)
	const silence = time.Second // its signs may be late on a busy machine
	var said atomic.Int32
	err := e.Stream(t.Context(), silence, "streaming", func(ctx context.Context, _ *client.Client, alive func()) error {
		for range 8 { // longer than the silence in all
			select {
			case <-time.After(silence / 4):
				alive()
				said.Add(1)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if said.Load() != 8 {
		t.Errorf("it was ended after %d signs of life", said.Load())
	}
	if !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), silence.String()) {
		t.Errorf("it is %v", err)
	}
}
