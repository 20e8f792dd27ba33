package conformance

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func endChecks() []check {
	return []check{
		{name: "L6_DestroyDestroys", run: checkDestroy},
		{name: "L6_DestroyTwiceIsSuccess", run: checkDestroyTwice},
		{name: "L6_DestroyLeavesOthers", run: checkDestroyLeavesOthers},
		{name: "L6_ClosingAHostDestroysNothing", hooks: hooks(needOtherHost), run: checkClose},
		{name: "L6_PluginEndDestroysNothing", hooks: hooks(needRestart), run: checkPluginEnd},
		{name: "L6_RefOfAnotherProviderIsInvalid", run: checkOtherProvidersRef},
		{name: "L6_ForeignRefIsInvalid", hooks: hooks(needElsewhere), run: checkForeignRef},
		{name: "L7_DestroyEndsACommandAtOnce", needs: commands, run: checkDestroyEndsCommand},
		{name: "L7_NothingWorksAfterDestroy", run: checkNothingAfterDestroy},
		{name: "L8_ReplacedIsUnavailable", hooks: hooks(needReplace), run: checkReplaced},
		{name: "L8_ReplacedIsUnavailableAfterRestart", hooks: hooks(needReplace, needRestart), run: checkReplacedRestart},
	}
}

func checkDestroy(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	e.mark(t, ws)
	e.destroy(t, e.opts.Host, ref)
	if e.features.Has(workspace.FeatureList) && slices.Contains(e.listed(t), ref) {
		t.Errorf("%s is still listed", ref)
	}
	_, err := e.attach(t, e.opts.Host, ref).WorkingDir(e.context(t))
	wantUnavailable(t, "attached to "+ref.String()+", which was destroyed", err)
}

func checkDestroyTwice(t testing.TB, e *env) {
	_, ref := e.created(t, e.opts.Host)
	e.destroy(t, e.opts.Host, ref)
	if err := e.opts.Host.Destroy(e.context(t), ref); err != nil {
		t.Errorf("destroy %s again: %v, want success", ref, err)
	}
}

func checkDestroyLeavesOthers(t testing.TB, e *env) {
	_, ref := e.created(t, e.opts.Host)
	other, otherRef := e.created(t, e.opts.Host)
	recognise := e.mark(t, other)
	e.destroy(t, e.opts.Host, ref)
	if err := recognise(e.attach(t, e.opts.Host, otherRef)); err != nil {
		t.Errorf("%s was destroyed, and %s: %v", ref, otherRef, err)
	}
}

func checkClose(t testing.TB, e *env) {
	h := e.opts.OtherHost(t)
	closer, ok := h.(io.Closer)
	if !ok {
		e.notChecked(t, "the host of Options.OtherHost is no io.Closer")
		return
	}
	// Destroyed by the host that goes on.
	ws, err := h.Workspace(e.opts.Provider)
	if err != nil {
		t.Fatal(err)
	}
	e.destroyAfter(t, e.opts.Host, ws)
	ref := e.use(t, ws)
	recognise := e.mark(t, ws)
	if err := closer.Close(); err != nil {
		t.Fatalf("close the host: %v", err)
	}
	if err := recognise(e.attach(t, e.opts.Host, ref)); err != nil {
		t.Errorf("the host that made %s was closed: %v", ref, err)
	}
}

func checkPluginEnd(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	recognise := e.mark(t, ws)
	again := e.attach(t, e.opts.Host, ref)
	if err := e.afterRestart(t, func() error { return recognise(again) }); err != nil {
		t.Errorf("the plugin was killed, and %s: %v", ref, err)
	}
}

func checkOtherProvidersRef(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	recognise := e.mark(t, ws)
	other := workspace.Ref{Provider: "no-" + e.opts.Provider[:min(len(e.opts.Provider), 60)], ID: ref.ID}
	wantInvalid(t, "destroy "+other.String()+", a provider that is not there", e.opts.Host.Destroy(e.context(t), other))
	if err := recognise(ws); err != nil {
		t.Errorf("%s was to be destroyed, and %s: %v", other, ref, err)
	}
}

func checkForeignRef(t testing.TB, e *env) {
	_, ref := e.opts.Elsewhere(t)
	wantInvalid(t, "destroy "+ref.String()+", which the provider did not make", e.opts.Host.Destroy(e.context(t), ref))
}

func checkDestroyEndsCommand(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	pids := join(e.workingDir(t, ws), "pids")
	cmd := e.cmdIn(t, ws, "tree", pids, "child")
	cmd.Timeout = e.opts.limits.check
	p := e.started(t, e.context(t), ws, cmd)
	e.destroy(t, e.opts.Host, ref)
	_, err := within(t, e.opts.limits.slack, "a command whose workspace was destroyed", func() answer {
		res, err := p.Wait()
		return answer{res, err}
	}).get()
	wantUnavailable(t, "a command whose workspace was destroyed", err)
}

func (a answer) get() (*workspace.Result, error) { return a.res, a.err }

func (e *env) workingDir(t testing.TB, ws workspace.Workspace) string {
	t.Helper()
	dir, err := ws.WorkingDir(e.context(t))
	if err != nil {
		t.Fatalf("working directory: %v", err)
	}
	return dir
}

func checkNothingAfterDestroy(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	e.mark(t, ws)
	cmd := workspace.Command{Args: []string{"true"}}
	e.destroy(t, e.opts.Host, ref)
	made := e.made(t, func() { e.wantGone(t, ws, cmd) })
	e.wantMade(t, made)
}

// wantGone checks that a handle does nothing any more.
func (e *env) wantGone(t testing.TB, ws workspace.Workspace, cmd workspace.Command) {
	t.Helper()
	ctx := e.context(t)
	if e.features.Has(workspace.FeatureCommands) {
		_, err := ws.Run(ctx, cmd)
		wantUnavailable(t, "run in a workspace that is gone", err)
	}
	if e.features.Has(workspace.FeatureFiles) {
		for what, f := range map[string]func(context.Context) error{
			"write": func(ctx context.Context) error { return ws.WriteFile(ctx, "mark", []byte("x")) },
			"read":  func(ctx context.Context) error { _, err := ws.ReadFile(ctx, "mark"); return err },
			"list":  func(ctx context.Context) error { _, err := ws.ReadDir(ctx, "."); return err },
			"stat":  func(ctx context.Context) error { _, err := ws.Stat(ctx, "mark"); return err },
		} {
			wantUnavailable(t, what+" in a workspace that is gone", f(ctx))
		}
	}
}

func checkReplaced(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	e.mark(t, ws)
	e.opts.Replace(t, ref)
	e.wantGone(t, ws, workspace.Command{Args: []string{"true"}})
}

func checkReplacedRestart(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	e.mark(t, ws)
	e.opts.Replace(t, ref)
	_ = e.afterRestart(t, func() error { // the plugin that comes knows nothing of the old one
		_, err := ws.Stat(e.context(t), "mark")
		return err
	})
	e.wantGone(t, ws, workspace.Command{Args: []string{"true"}})
}
