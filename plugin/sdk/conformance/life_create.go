package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func createChecks() []check {
	return []check{
		{name: "L1_HandlesAreMadeWithoutIO", run: checkHandlesWithoutIO},
		{name: "L1_HandlesStartNoPlugin", hooks: hooks(needOtherHost, needStarted), run: checkHandlesStartNothing},
		{name: "L2_ConcurrentFirstUseMakesOne", run: checkConcurrentFirstUse},
		{name: "L2_SameTokenIsSameWorkspace", run: checkSameToken},
		{name: "L2_CancelledFirstUseMakesOne", run: checkCancelledFirstUse},
		{name: "L2_CancelledCallerFailsNoOther", run: checkCancelledCaller},
		{name: "L2_RefIsThereAfterFirstUse", run: checkRefAfterFirstUse},
		{name: "L2_FailedCreateFailsAllAndIsTriedAgain", hooks: hooks(needFailCreates), run: checkFailedCreate},
		{name: "L2_PluginKilledInCreateMakesOne", hooks: hooks(needRestart), run: checkKilledInCreate},
	}
}

// firstUsers is how many operations come at once (OpenHands#5557: 20).
const firstUsers = 20

func checkHandlesWithoutIO(t testing.TB, e *env) {
	made := e.made(t, func() {
		ws := e.open(t, e.opts.Host)
		gone := workspace.Ref{Provider: e.opts.Provider, ID: workspace.NewToken()}
		if _, err := e.opts.Host.Attach(gone); err != nil {
			t.Errorf("a handle to %s, which is not there: %v, want no error before the first operation", gone, err)
		}
		pause(e.opts.limits.settle)
		if ref, ok := ws.Ref(); ok {
			t.Errorf("a handle that was not used has the ref %s", ref)
		}
	})
	e.wantMade(t, made)
}

func checkHandlesStartNothing(t testing.TB, e *env) {
	h := e.opts.OtherHost(t)
	if _, err := h.Workspace(e.opts.Provider); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Attach(workspace.Ref{Provider: e.opts.Provider, ID: workspace.NewToken()}); err != nil {
		t.Fatal(err)
	}
	pause(e.opts.limits.settle)
	if e.opts.Started(h) {
		t.Error("making a handle started the plugin")
	}
	e.use(t, e.open(t, h))
	if !e.opts.Started(h) {
		t.Error("Options.Started says that nothing was started, and a workspace was opened")
	}
}

// refsOf uses each handle concurrently and returns the refs.
func (e *env) refsOf(t testing.TB, handles []workspace.Workspace) []workspace.Ref {
	t.Helper()
	ctx := e.context(t)
	refs := make([]workspace.Ref, len(handles))
	errs := make([]error, len(handles))
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, ws := range handles {
		wg.Go(func() {
			<-start
			_, errs[i] = ws.WorkingDir(ctx)
			refs[i], _ = ws.Ref()
		})
	}
	close(start)
	within(t, e.opts.limits.patience, "first use", func() struct{} { wg.Wait(); return struct{}{} })
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("first use: %v", err)
	}
	return refs
}

func wantOneRef(t testing.TB, refs []workspace.Ref) {
	t.Helper()
	for i, ref := range refs {
		if ref != refs[0] || ref.IsZero() {
			t.Errorf("handle %d has the ref %q, handle 0 %q, want one and the same", i, ref, refs[0])
		}
	}
}

func repeated(ws workspace.Workspace, n int) []workspace.Workspace {
	all := make([]workspace.Workspace, n)
	for i := range all {
		all[i] = ws
	}
	return all
}

func checkConcurrentFirstUse(t testing.TB, e *env) {
	var ref workspace.Ref
	made := e.made(t, func() {
		refs := e.refsOf(t, repeated(e.open(t, e.opts.Host), firstUsers))
		wantOneRef(t, refs)
		ref = refs[0]
	})
	e.wantMade(t, made, ref)
}

func checkSameToken(t testing.TB, e *env) {
	token := workspace.WithToken(workspace.NewToken())
	var ref workspace.Ref
	made := e.made(t, func() {
		_, ref = e.created(t, e.opts.Host, token)
		_, again := e.created(t, e.opts.Host, token)
		wantOneRef(t, []workspace.Ref{ref, again})
		if e.opts.OtherHost != nil {
			_, other := e.created(t, e.opts.OtherHost(t), token)
			wantOneRef(t, []workspace.Ref{ref, other})
		}
	})
	e.wantMade(t, made, ref)
}

func checkCancelledFirstUse(t testing.TB, e *env) {
	var refs []workspace.Ref
	made := e.made(t, func() {
		for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
			ws := e.open(t, e.opts.Host)
			ctx, cancel := context.WithTimeout(e.context(t), after)
			_, err := ws.WorkingDir(ctx)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("first use cancelled after %v: %v, want the context's error", after, err)
			}
			refs = append(refs, e.use(t, ws))
		}
	})
	e.wantMade(t, made, refs...)
}

func checkCancelledCaller(t testing.TB, e *env) {
	ws := e.open(t, e.opts.Host)
	ctx, cancel := context.WithCancel(e.context(t))
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = ws.WorkingDir(ctx) }) // cancelled, or just in time
	other := make(chan error, 1)
	wg.Go(func() {
		_, err := ws.WorkingDir(e.context(t))
		other <- err
	})
	cancel()
	err := within(t, e.opts.limits.patience, "the other caller's first use", func() error { return <-other })
	wg.Wait()
	if err != nil {
		t.Errorf("one caller was cancelled, and another one got %v", err)
	}
}

func checkRefAfterFirstUse(t testing.TB, e *env) {
	ws := e.open(t, e.opts.Host)
	ref := e.use(t, ws)
	if err := ref.Validate(); err != nil {
		t.Errorf("the handle's ref: %v", err)
	}
	if ref.Provider != e.opts.Provider {
		t.Errorf("the ref is %s, want one of provider %s", ref, e.opts.Provider)
	}
	if again := e.use(t, e.attach(t, e.opts.Host, ref)); again != ref {
		t.Errorf("a handle attached to %s has the ref %s", ref, again)
	}
}

func checkFailedCreate(t testing.TB, e *env) {
	mend := e.opts.FailCreates(t)
	var once sync.Once
	defer once.Do(mend)
	ws := e.open(t, e.opts.Host)
	ctx := e.context(t)
	made := e.made(t, func() {
		errs := make([]error, firstUsers)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = ws.WorkingDir(ctx) })
		}
		within(t, e.opts.limits.patience, "first use", func() struct{} { wg.Wait(); return struct{}{} })
		for i, err := range errs {
			if err == nil {
				t.Errorf("operation %d succeeded though its create must fail", i)
			}
		}
		if ref, ok := ws.Ref(); ok {
			t.Errorf("the create failed, and the handle has the ref %s", ref)
		}
	})
	once.Do(mend)
	e.wantMade(t, made)
	var ref workspace.Ref
	made = e.made(t, func() { ref = e.use(t, ws) })
	e.wantMade(t, made, ref)
}

// killedCreates is how often the plugin is killed, a little later each time.
const killedCreates = 4

func checkKilledInCreate(t testing.TB, e *env) {
	for i := range killedCreates {
		var ref workspace.Ref
		made := e.made(t, func() {
			ws := e.open(t, e.opts.Host)
			first := make(chan error, 1)
			go func() {
				_, err := ws.WorkingDir(e.context(t))
				first <- err
			}()
			pause(time.Duration(i) * 2 * time.Millisecond)
			e.restart(t)
			_ = within(t, e.opts.limits.patience, "first use while the plugin is killed", func() error { return <-first }) // or just in time
			var err error
			e.eventually(t, "a first use on the restarted plugin", func() bool {
				_, err = ws.WorkingDir(e.context(t))
				var dead *workspace.PluginError
				return !errors.As(err, &dead) // it may need some time to come up
			})
			if err != nil {
				t.Fatalf("the operation after the plugin's death: %v", err)
			}
			ref = e.use(t, ws)
		})
		if len(made) > 0 || !e.ephemeral() { // it may have ended with the plugin that made it
			e.wantMade(t, made, ref)
		}
	}
}

// mark leaves something by which a workspace is known again, and recognise says
// whether it is there: a file, or where there are none a running command.
func (e *env) mark(t testing.TB, ws workspace.Workspace) (recognise func(workspace.Workspace) error) {
	t.Helper()
	content := workspace.NewToken()
	if e.features.Has(workspace.FeatureFiles) {
		if err := ws.WriteFile(e.context(t), "mark", []byte(content)); err != nil {
			t.Fatalf("write a file: %v", err)
		}
		return func(ws workspace.Workspace) error {
			got, err := ws.ReadFile(e.context(t), "mark")
			if err == nil && string(got) != content {
				err = fmt.Errorf("the file holds %q, want %q: another workspace", got, content)
			}
			return err
		}
	}
	dir, err := ws.WorkingDir(e.context(t))
	if err != nil {
		t.Fatal(err)
	}
	mark := join(dir, content)
	if res, err := e.runIn(t, ws, e.cmdIn(t, ws, "touch", mark)); err != nil || res.ExitCode != 0 {
		t.Fatalf("make a file: %s", outcome(res, err))
	}
	return func(ws workspace.Workspace) error {
		res, err := e.runIn(t, ws, e.cmdIn(t, ws, "exists", mark))
		if err == nil && string(res.Stdout) != "yes\n" {
			err = fmt.Errorf("what was made is not there: another workspace: %w", fs.ErrNotExist)
		}
		return err
	}
}
