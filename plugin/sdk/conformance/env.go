package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// env is what the checks of one run share. Rules about commands and files use
// one workspace, each check in a directory of its own; rules about the life of
// workspaces make their own.
type env struct {
	opts     Options
	features workspace.Features
	outer    testing.TB // the shared workspace lives as long as this

	mu     sync.Mutex
	ws     workspace.Workspace
	wd     string
	dirs   int
	probes map[workspace.Workspace]string

	// skipped is why the running check found nothing to check.
	skipped string
}

func newEnv(t testing.TB, opts Options) *env {
	t.Helper()
	e := &env{opts: opts, outer: t, probes: map[workspace.Workspace]string{}}
	ctx := e.context(t)
	features, err := e.shared(t).Features(ctx)
	if err != nil {
		t.Fatalf("features of provider %s: %v", opts.Provider, err)
	}
	e.features = workspace.Features{}
	for f, has := range features {
		e.features[f] = has
	}
	// List is the provider's, so no workspace announces it: ask.
	for _, err := range opts.Host.List(ctx, opts.Provider, workspace.ListOptions{}) {
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Fatalf("list provider %s: %v", opts.Provider, err)
		}
		e.features[workspace.FeatureList] = err == nil
		break
	}
	return e
}

// context ends with the check, and before `go test` gives up.
func (e *env) context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), e.opts.limits.check)
	t.Cleanup(cancel)
	return ctx
}

// notChecked says why a check found nothing to check. The check then returns.
func (e *env) notChecked(t testing.TB, format string, args ...any) {
	e.skipped = fmt.Sprintf(format, args...)
	t.Logf("not checked: %s", e.skipped)
}

// shared opens the workspace of the rules about commands and files.
func (e *env) shared(t testing.TB) workspace.Workspace {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ws != nil {
		return e.ws
	}
	ws := e.open(e.outer, e.opts.Host)
	wd, err := ws.WorkingDir(e.context(t))
	if err != nil {
		t.Fatalf("open a workspace of provider %s: %v", e.opts.Provider, err)
	}
	e.ws, e.wd = ws, wd
	return ws
}

// open makes a handle whose workspace, if it ever gets one, ends with t.
func (e *env) open(t testing.TB, h workspace.Host, opts ...workspace.Option) workspace.Workspace {
	t.Helper()
	ws, err := h.Workspace(e.opts.Provider, opts...)
	if err != nil {
		t.Fatalf("handle of provider %s: %v", e.opts.Provider, err)
	}
	e.destroyAfter(t, h, ws)
	return ws
}

// cleanupTime is how long a clean-up may take: t's own context is over then.
const cleanupTime = time.Minute

func (e *env) destroyAfter(t testing.TB, h workspace.Host, ws workspace.Workspace) {
	t.Cleanup(func() {
		ref, ok := ws.Ref()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		if err := h.Destroy(ctx, ref); err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Errorf("destroy %s: %v", ref, err)
		}
	})
}

// restart kills the plugin. Where workspaces end with it, as the provider
// declares, the checks that follow need another one.
func (e *env) restart(t testing.TB) {
	t.Helper()
	e.opts.Restart(t)
	if e.ephemeral() {
		e.mu.Lock()
		e.ws = nil
		e.mu.Unlock()
	}
}

func (e *env) ephemeral() bool {
	_, declared := e.deviation("L6_PluginEndDestroysNothing")
	return declared
}

// created opens a workspace and returns its handle and ref.
func (e *env) created(t testing.TB, h workspace.Host, opts ...workspace.Option) (workspace.Workspace, workspace.Ref) {
	t.Helper()
	ws := e.open(t, h, opts...)
	return ws, e.use(t, ws)
}

// use is a first operation that every provider has; it returns the ref.
func (e *env) use(t testing.TB, ws workspace.Workspace) workspace.Ref {
	t.Helper()
	if _, err := ws.WorkingDir(e.context(t)); err != nil {
		t.Fatalf("open the workspace: %v", err)
	}
	ref, ok := ws.Ref()
	if !ok {
		t.Fatalf("the workspace is open, and its handle has no ref")
	}
	return ref
}

func (e *env) attach(t testing.TB, h workspace.Host, ref workspace.Ref) workspace.Workspace {
	t.Helper()
	ws, err := h.Attach(ref)
	if err != nil {
		t.Fatalf("attach %s: %v", ref, err)
	}
	return ws
}

func (e *env) destroy(t testing.TB, h workspace.Host, ref workspace.Ref) {
	t.Helper()
	if err := h.Destroy(e.context(t), ref); err != nil {
		t.Fatalf("destroy %s: %v", ref, err)
	}
}

// listed returns the refs of all that the provider made.
func (e *env) listed(t testing.TB) []workspace.Ref {
	t.Helper()
	var refs []workspace.Ref
	for info, err := range e.opts.Host.List(e.context(t), e.opts.Provider, workspace.ListOptions{}) {
		if err != nil {
			t.Fatalf("list provider %s: %v", e.opts.Provider, err)
		}
		refs = append(refs, info.Ref)
	}
	return refs
}

// made runs f and returns what the provider made meanwhile. It destroys that
// after the check, whoever has lost track of it.
func (e *env) made(t testing.TB, f func()) []workspace.Ref {
	t.Helper()
	if !e.features.Has(workspace.FeatureList) {
		f()
		return nil
	}
	before := e.listed(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTime)
		defer cancel()
		for info, err := range e.opts.Host.List(ctx, e.opts.Provider, workspace.ListOptions{}) {
			if err == nil && !slices.Contains(before, info.Ref) {
				_ = e.opts.Host.Destroy(ctx, info.Ref) // of a workspace that should not be there
			}
		}
	})
	f()
	return slices.DeleteFunc(e.listed(t), func(r workspace.Ref) bool { return slices.Contains(before, r) })
}

// wantMade checks that nothing but the workspaces of want was made, as far as
// the provider can list.
func (e *env) wantMade(t testing.TB, made []workspace.Ref, want ...workspace.Ref) {
	t.Helper()
	if e.features.Has(workspace.FeatureList) && !sameRefs(made, want) {
		t.Errorf("the provider made %v, want %v", made, want)
	}
}

func sameRefs(a, b []workspace.Ref) bool {
	byText := func(x, y workspace.Ref) int { return strings.Compare(x.String(), y.String()) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), byText), slices.SortedFunc(slices.Values(b), byText))
}

// dir makes a directory for one check in the shared workspace.
func (e *env) dir(t testing.TB) string {
	t.Helper()
	ws := e.shared(t)
	e.mu.Lock()
	e.dirs++
	// Short: the path of a unix socket may have 107 bytes.
	dir := join(e.wd, fmt.Sprintf("c%d", e.dirs))
	e.mu.Unlock()
	if !e.features.Has(workspace.FeatureFiles) {
		e.output(t, "mkdir", dir)
		return dir
	}
	if err := ws.MkdirAll(e.context(t), dir); err != nil {
		t.Fatalf("make the check's directory: %v", err)
	}
	return dir
}

func join(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

// within runs f, and ends the check if f does not end by itself. What f was
// waiting for is lost then, with its goroutine: that is the fault found.
func within[R any](t testing.TB, limit time.Duration, what string, f func() R) R {
	t.Helper()
	done := make(chan R, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
		var none R
		t.Fatalf("%s: no answer after %v", what, limit)
		return none
	}
}

// pollEvery is how often eventually looks.
const pollEvery = 20 * time.Millisecond

// eventually polls until ok says yes.
func (e *env) eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(e.opts.limits.patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after %v", what, e.opts.limits.patience)
		}
		pause(pollEvery)
	}
}

// pause is between two looks at the same thing, or the time for which
// something that should not happen is watched.
func pause(d time.Duration) { <-time.After(d) }
