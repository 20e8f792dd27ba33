package conformance

import (
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func attachChecks() []check {
	return []check{
		{name: "L3_AttachReachesTheSameWorkspace", run: checkAttach},
		{name: "L3_AnotherHostReachesTheSameWorkspace", hooks: hooks(needOtherHost), run: checkAttachElsewhere},
		{name: "L3_AttachNeverCreates", run: checkAttachNeverCreates},
		{name: "L3_StoppedIsStarted", hooks: hooks(needStop), run: checkStopped},
		{name: "L3_AttachNeedsNoConfiguration", hooks: hooks(needReconfigured), run: checkReconfigured},
		{name: "L5_RefNeverChanges", run: checkRefStays},
		{name: "L5_RefOutlivesThePlugin", hooks: hooks(needRestart), run: checkRefOutlivesPlugin},
	}
}

func nameChecks() []check {
	return []check{
		{name: "L4_NameCreatesThenAttaches", run: checkName},
		{name: "L4_NamesAreApart", run: checkNamesApart},
		{name: "L4_BadNameIsInvalid", run: checkBadNames},
		{name: "L4_RacingClientsEndInOne", hooks: hooks(needOtherHost), run: checkRacingClients},
		{name: "L4_RefOfNameIsAttachOnly", run: checkNamedRef},
		{name: "L4_ForeignNameIsInvalid", hooks: hooks(needElsewhere), run: checkForeignName},
		{name: "L4_ConfiguredNameIsTheOnlyOne", hooks: hooks(needConfigured), run: checkConfiguredName},
	}
}

func checkAttach(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	recognise := e.mark(t, ws)
	again := e.attach(t, e.opts.Host, ref)
	if err := recognise(again); err != nil {
		t.Errorf("attached to %s: %v", ref, err)
	}
	if got := e.use(t, again); got != ref {
		t.Errorf("attached to %s, and the handle's ref is %s", ref, got)
	}
}

func checkAttachElsewhere(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	recognise := e.mark(t, ws)
	if err := recognise(e.attach(t, e.opts.OtherHost(t), ref)); err != nil {
		t.Errorf("attached to %s by another host: %v", ref, err)
	}
}

func checkAttachNeverCreates(t testing.TB, e *env) {
	made := e.made(t, func() {
		_, ref := e.created(t, e.opts.Host)
		e.destroy(t, e.opts.Host, ref)
		_, err := e.attach(t, e.opts.Host, ref).WorkingDir(e.context(t))
		wantUnavailable(t, "attached to "+ref.String()+", which was destroyed", err)
	})
	e.wantMade(t, made)
}

func checkStopped(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	recognise := e.mark(t, ws)
	e.opts.Stop(t, ref)
	again := e.attach(t, e.opts.Host, ref)
	if err := recognise(again); err != nil {
		t.Errorf("attached to %s, which was stopped: %v", ref, err)
	}
}

func checkReconfigured(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	recognise := e.mark(t, ws)
	dir, err := ws.WorkingDir(e.context(t))
	if err != nil {
		t.Fatal(err)
	}
	again := e.attach(t, e.opts.Reconfigured(t), ref)
	if err := recognise(again); err != nil {
		t.Errorf("attached to %s under another configuration: %v", ref, err)
	}
	if got, err := again.WorkingDir(e.context(t)); got != dir || err != nil {
		t.Errorf("its working directory under another configuration is %q (error %v), want %q", got, err, dir)
	}
}

// wantRef checks that the handle says the same as ever.
func wantRef(t testing.TB, when string, ws workspace.Workspace, want workspace.Ref) {
	t.Helper()
	if got, ok := ws.Ref(); !ok || got != want {
		t.Errorf("%s the handle's ref is %q (%v), before it was %q", when, got, ok, want)
	}
}

func checkRefStays(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	e.mark(t, ws)
	wantRef(t, "after a write", ws, ref)
	if _, err := ws.Stat(e.context(t), "nothing/here"); err == nil {
		t.Error("stat of a missing file succeeded")
	}
	wantRef(t, "after an error", ws, ref)
	e.destroy(t, e.opts.Host, ref)
	if _, err := ws.Stat(e.context(t), "mark"); err == nil {
		t.Error("stat in a destroyed workspace succeeded")
	}
	wantRef(t, "after the workspace's end", ws, ref)
}

// afterRestart kills the plugin and calls f until its plugin is up again.
func (e *env) afterRestart(t testing.TB, f func() error) error {
	t.Helper()
	e.restart(t)
	var err error
	e.eventually(t, "an answer of the restarted plugin", func() bool {
		err = f()
		var dead *workspace.PluginError
		return !errors.As(err, &dead)
	})
	return err
}

func checkRefOutlivesPlugin(t testing.TB, e *env) {
	ws, ref := e.created(t, e.opts.Host)
	_ = e.afterRestart(t, func() error { // whether the workspace is there still is not this rule
		_, err := ws.Stat(e.context(t), "nothing/here")
		return err
	})
	wantRef(t, "after the plugin's restart", ws, ref)
}

// newName is a workspace's name that nobody else uses.
func newName() string {
	return "conformance-" + strings.TrimPrefix(workspace.NewToken(), "berth-")
}

func checkName(t testing.TB, e *env) {
	name := newName()
	var ref workspace.Ref
	made := e.made(t, func() {
		var ws workspace.Workspace
		ws, ref = e.created(t, e.opts.Host, workspace.WithName(name))
		recognise := e.mark(t, ws)
		again, ref2 := e.created(t, e.opts.Host, workspace.WithName(name))
		wantOneRef(t, []workspace.Ref{ref, ref2})
		if err := recognise(again); err != nil {
			t.Errorf("opened by its name again: %v", err)
		}
	})
	if !strings.Contains(ref.ID, name) {
		t.Errorf("the ref %s does not carry the name %s", ref, name)
	}
	e.wantMade(t, made, ref)
}

func checkNamesApart(t testing.TB, e *env) {
	one, ref1 := e.created(t, e.opts.Host, workspace.WithName(newName()))
	two, ref2 := e.created(t, e.opts.Host, workspace.WithName(newName()))
	if ref1 == ref2 {
		t.Fatalf("two names lead to one workspace, %s", ref1)
	}
	e.mark(t, one)
	if recognise := e.mark(t, two); recognise(one) == nil {
		t.Errorf("%s and %s share their files", ref1, ref2)
	}
}

func checkBadNames(t testing.TB, e *env) {
	for _, name := range []string{"-a", "a-", "A", "a.b", "a/b", "a b", "ä", "a\x00", strings.Repeat("a", 64), workspace.NewToken()} {
		made := e.made(t, func() {
			ws, err := e.opts.Host.Workspace(e.opts.Provider, workspace.WithName(name))
			if err == nil { // refused with the handle or with the first operation
				e.destroyAfter(t, e.opts.Host, ws)
				_, err = ws.WorkingDir(e.context(t))
			}
			wantInvalid(t, "a workspace named "+name, err)
		})
		e.wantMade(t, made)
	}
}

func checkRacingClients(t testing.TB, e *env) {
	other := e.opts.OtherHost(t)
	e.use(t, e.open(t, other)) // both hosts are up, so that they race
	name := workspace.WithName(newName())
	var ref workspace.Ref
	made := e.made(t, func() {
		var handles []workspace.Workspace
		for range firstUsers / 4 {
			handles = append(handles, e.open(t, e.opts.Host, name), e.open(t, other, name))
		}
		refs := e.refsOf(t, handles)
		wantOneRef(t, refs)
		ref = refs[0]
		recognise := e.mark(t, handles[0])
		for i, ws := range handles {
			if err := recognise(ws); err != nil {
				t.Errorf("handle %d: %v", i, err)
			}
		}
	})
	e.wantMade(t, made, ref)
}

func checkNamedRef(t testing.TB, e *env) {
	name := workspace.WithName(newName())
	made := e.made(t, func() {
		_, ref := e.created(t, e.opts.Host, name)
		e.destroy(t, e.opts.Host, ref)
		_, err := e.attach(t, e.opts.Host, ref).WorkingDir(e.context(t))
		wantUnavailable(t, "attached to "+ref.String()+", which was destroyed", err)
	})
	e.wantMade(t, made)
}

func checkForeignName(t testing.TB, e *env) {
	name, _ := e.opts.Elsewhere(t)
	made := e.made(t, func() {
		_, err := e.open(t, e.opts.Host, workspace.WithName(name)).WorkingDir(e.context(t))
		wantInvalid(t, "a workspace named "+name+", which the provider did not make", err)
	})
	e.wantMade(t, made)
}

func checkConfiguredName(t testing.TB, e *env) {
	c := e.opts.Configured(t)
	ctx := e.context(t)
	ws, err := c.Host.Workspace(c.Provider)
	if err != nil {
		t.Fatal(err)
	}
	ref := e.use(t, ws)
	if other, err := c.Host.Workspace(c.Provider); err != nil {
		t.Error(err)
	} else if got := e.use(t, other); got != ref {
		t.Errorf("provider %s is configured with the name %s, and has both %s and %s", c.Provider, c.Name, ref, got)
	}
	other, err := c.Host.Workspace(c.Provider, workspace.WithName(newName()))
	if err == nil {
		_, err = other.WorkingDir(ctx)
	}
	wantInvalid(t, "another name than the configured one", err)
	for _, id := range []string{workspace.NewToken(), newName()} {
		other, err := c.Host.Attach(workspace.Ref{Provider: c.Provider, ID: id})
		if err == nil {
			_, err = other.WorkingDir(ctx)
		}
		wantInvalid(t, "another ref than the configured name's", err)
	}
}
