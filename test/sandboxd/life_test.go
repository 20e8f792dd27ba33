//go:build sandboxd

package sandboxd_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/sandboxd/sandboxdtest"
)

// TestRacesForANameEndInOneSession has 20 clients in 4 processes open one name at the
// same moment (contract L4).
func TestRacesForANameEndInOneSession(t *testing.T) {
	const hosts, clients = 4, 20
	b := newBed(t, nil, nil)
	all := []*host.Host{b.host}
	for len(all) < hosts {
		all = append(all, b.newHost(t, nil))
	}
	for _, h := range all { // up before, so that they race
		for _, err := range h.List(t.Context(), provider, workspace.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"race-1", "race-2", "race-3"} {
		before := b.front.asked("POST sessions")
		var wait sync.WaitGroup
		start, refs, errs := make(chan struct{}), make([]workspace.Ref, clients), make([]error, clients)
		for i := range clients {
			wait.Go(func() {
				ws, err := all[i%hosts].Workspace(provider, workspace.WithName(name))
				<-start
				if err == nil {
					_, err = ws.Run(t.Context(), workspace.Command{Args: []string{"touch", "file"}})
					refs[i], _ = ws.Ref()
				}
				errs[i] = err
			})
		}
		close(start)
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, ref := range refs {
			if ref.ID != name {
				t.Errorf("a client of the name %s got %s", name, ref)
			}
		}
		if asked := b.front.asked("POST sessions") - before; asked < hosts {
			t.Errorf("%d requests to open the name, want one of each process at least", asked)
		}
	}
	if sessions := b.service.Sessions(t); len(sessions) != 3 {
		t.Errorf("the service has the sessions %q, want three", sessions)
	}
	if containers := b.service.Containers(t); len(containers) != 3 {
		t.Errorf("%d containers, want three", len(containers))
	}
}

// TestReapedSessionComesBack has the service close sessions that are idle: the same
// handle goes on with the same files, and so does another host (contract L3).
func TestReapedSessionComesBack(t *testing.T) {
	b := newBed(t, sandboxdtest.Settings{"idle_timeout": 2, "cleanup_interval": 1}, nil)
	ws, ref := b.open(t)
	reap := func() {
		t.Helper()
		eventually(t, "the session is reaped", func() bool { return len(b.service.Sessions(t)) == 0 })
	}
	if err := ws.WriteFile(t.Context(), "kept", []byte("by us")); err != nil {
		t.Fatal(err)
	}
	for i, use := range []func(workspace.Workspace) error{
		func(ws workspace.Workspace) error { _, err := ws.ReadFile(t.Context(), "kept"); return err },
		func(ws workspace.Workspace) error {
			res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"cat", "kept"}})
			if err == nil && string(res.Stdout) != "by us" {
				t.Errorf("the file holds %q", res.Stdout)
			}
			return err
		},
		func(ws workspace.Workspace) error { return ws.WriteFile(t.Context(), "kept", []byte("by us")) },
		func(ws workspace.Workspace) error { _, err := ws.ReadDir(t.Context(), "."); return err },
	} {
		reap()
		if err := use(ws); err != nil {
			t.Errorf("use %d of a session that was reaped: %v", i, err)
		}
	}
	reap()
	again, err := b.newHost(t, nil).Attach(ref)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.ReadFile(t.Context(), "kept"); err != nil || string(got) != "by us" {
		t.Errorf("another host reads %q, error %v", got, err)
	}
	reap()
	if err := b.host.Destroy(t.Context(), ref); err != nil {
		t.Errorf("destroy a session that was reaped: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b.service.Root, ref.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are there still: %v", err)
	}
	if _, err := ws.ReadFile(t.Context(), "kept"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("a handle to what was destroyed: %v", err)
	}
}

// TestCommandsHoldOffTheReaper: a command that goes on is use.
func TestCommandsHoldOffTheReaper(t *testing.T) {
	b := newBed(t, sandboxdtest.Settings{"idle_timeout": 2, "cleanup_interval": 1}, nil)
	ws, _ := b.open(t)
	if out := script(t, ws, "sleep 8; echo done"); out != "done\n" {
		t.Errorf("it said %q", out)
	}
}

// beats returns how often a command that writes into a file of the workspace has.
func (b *bed) beats(t testing.TB, ref workspace.Ref, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.service.Root, ref.ID, "workspace", name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// beating is a script that does that.
const beating = "echo start >>starts; while :; do echo beat >>beats; sleep 0.1; done"

// newBeat is a bed with a workspace in which such a command runs.
func newBeat(t testing.TB) (*bed, workspace.Workspace, workspace.Ref, workspace.Process) {
	t.Helper()
	b := newBed(t, nil, nil)
	ws, ref := b.open(t)
	p, err := ws.Start(t.Context(), workspace.Command{Script: beating})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { return b.beats(t, ref, "beats") > 0 })
	return b, ws, ref, p
}

// stops waits until a command has ended in its container.
func (b *bed) stops(t testing.TB, ref workspace.Ref) {
	t.Helper()
	last, since := -1, time.Now()
	eventually(t, "the command is stopped in its container", func() bool {
		if n := b.beats(t, ref, "beats"); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
	if n := b.beats(t, ref, "starts"); n != 1 {
		t.Errorf("the command was started %d times", n)
	}
}

// TestKilledService: what runs ends with an error that may pass, and its command is
// stopped; when the service is back, so is the workspace (contract B5).
func TestKilledService(t *testing.T) {
	b, ws, ref, p := newBeat(t)
	b.service.Kill(t)
	if res, err := p.Wait(); !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("a command whose service was killed: %v, %v, want a fault that passes", res, err)
	}
	if _, err := ws.ReadFile(t.Context(), "beats"); !errors.Is(err, workspace.ErrTransient) || errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("a read without a service: %v, want a fault that passes", err)
	}
	b.stops(t, ref)
	b.service.Restart(t)
	if out := script(t, ws, "cat starts"); out != "start\n" {
		t.Errorf("the file holds %q", out)
	}
}

// TestKilledPlugin: a command that nobody looks after is stopped within ten seconds
// (contract B3).
func TestKilledPlugin(t *testing.T) {
	b, ws, ref, p := newBeat(t)
	killPlugin(t, b.host)
	var died *workspace.PluginError
	if res, err := p.Wait(); !errors.As(err, &died) {
		t.Errorf("a command whose plugin was killed: %v, %v", res, err)
	}
	b.stops(t, ref)
	if out := script(t, ws, "ls -a /tmp /dev/shm"); strings.Contains(out, ".berth-run-") && strings.Count(out, ".berth-run-") > 1 {
		t.Errorf("left: %s", out)
	}
}

// TestResetConnection: a command whose request is lost is stopped, and not sent again.
func TestResetConnection(t *testing.T) {
	b, ws, ref, p := newBeat(t)
	b.front.reset()
	if res, err := p.Wait(); !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("a command whose connection was reset: %v, %v, want a fault that passes", res, err)
	}
	b.stops(t, ref)
	if out := script(t, ws, "cat starts"); out != "start\n" {
		t.Errorf("the file holds %q", out)
	}
}

// TestSilentService: a command is given up when the service has not answered for so long
// that its container has stopped it, not when its longest would have ended.
func TestSilentService(t *testing.T) {
	b := newBed(t, nil, map[string]any{"request_timeout": 1})
	ws, ref := b.open(t)
	p, err := ws.Start(t.Context(), workspace.Command{Script: beating})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { return b.beats(t, ref, "beats") > 0 })
	thaw := b.service.Freeze(t)
	if res, err := p.Wait(); !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "nobody looks after") {
		t.Errorf("a command whose service is silent: %v, %v, want a fault that passes", res, err)
	}
	thaw()
	b.stops(t, ref)
}

// TestUnwatchedCommand: the exit code of a command that its container stopped, since
// nobody could look after it, is not the command's own.
func TestUnwatchedCommand(t *testing.T) {
	b, _, ref, p := newBeat(t)
	b.front.refuse()
	if res, err := p.Wait(); !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "nobody had looked after it") {
		t.Errorf("a command that could not be looked after: %v, %v, want a fault that passes", res, err)
	}
	b.stops(t, ref)
}

// TestSlowService: a service that does not answer in time is a fault that passes, told
// when request_timeout has passed.
func TestSlowService(t *testing.T) {
	b := newBed(t, nil, map[string]any{"request_timeout": 2})
	ws, _ := b.open(t)
	b.front.slow(0, 30*time.Second)
	began := time.Now()
	err := ws.MkdirAll(t.Context(), "d")
	if !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "has not answered within 2s") {
		t.Errorf("a call of a service that does not answer: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	b.front.slow(0, 0)
	if err := ws.MkdirAll(t.Context(), "d"); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// TestContainerThatIsRemoved: what runs in it ends at once, and the workspace comes
// back with its files.
func TestContainerThatIsRemoved(t *testing.T) {
	b, ws, _, p := newBeat(t)
	b.service.RemoveContainers(t)
	if res, err := p.Wait(); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("a command whose container was removed: %v, %v", res, err)
	}
	eventually(t, "the workspace is there again", func() bool {
		got, err := ws.ReadFile(t.Context(), "starts")
		return err == nil && string(got) == "start\n"
	})
}

// TestListTellsOurs: a service is shared.
func TestListTellsOurs(t *testing.T) {
	b := newBed(t, nil, nil)
	_, one := b.open(t)
	_, two := b.open(t, workspace.WithName("named"))
	b.service.Call(t, "POST", "/sessions", map[string]any{"session_id": "another"})
	b.service.Call(t, "POST", "/sessions", map[string]any{"session_id": "Capital", "tenant": "berth-" + provider})
	list := func(h *host.Host) (ids []string) {
		t.Helper()
		for info, err := range h.List(t.Context(), provider, workspace.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if info.Created.IsZero() || info.State != "running" || info.Details["runtime"] != "debian" {
				t.Errorf("it lists %+v", info)
			}
			ids = append(ids, info.Ref.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if got := list(b.host); !slices.Equal(got, []string{one.ID, two.ID}) {
		t.Errorf("it lists %q", got)
	}
	if got := list(b.newHost(t, map[string]any{"tenant": "somebody"})); len(got) != 0 {
		t.Errorf("for another tenant it lists %q", got)
	}
	// Those of others, which are open, are not reached either.
	for _, id := range []string{"another", "Capital", "s-0123456789abcdef"} {
		if err := b.host.Destroy(t.Context(), workspace.Ref{Provider: provider, ID: id}); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("destroy session %s: %v, want %v", id, err, workspace.ErrInvalid)
		}
	}
	if got := len(b.service.Sessions(t)); got != 4 {
		t.Errorf("the service has %d sessions, want 4", got)
	}
}

// TestNameIsTheKey: a name that is open leads to its session, whatever runtime is
// configured now; one that the service does not have is told.
func TestNameIsTheKey(t *testing.T) {
	b := newBed(t, nil, nil)
	ws, _ := b.open(t, workspace.WithName("kept"))
	if err := ws.WriteFile(t.Context(), "file", []byte("x")); err != nil {
		t.Fatal(err)
	}
	again, err := b.newHost(t, map[string]any{"runtime": "busybox"}).Workspace(provider, workspace.WithName("kept"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.ReadFile(t.Context(), "file"); string(got) != "x" || err != nil {
		t.Errorf("it reads %q, error %v", got, err)
	}
	wrong, err := b.newHost(t, map[string]any{"runtime": "no-such-runtime"}).Workspace(provider, workspace.WithName("new"))
	if err == nil {
		_, err = wrong.WorkingDir(t.Context())
	}
	if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "no-such-runtime") {
		t.Errorf("a runtime that the service does not have: %v", err)
	}
}
