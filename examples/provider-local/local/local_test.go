package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/examples/provider-local/local"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestMain makes this binary the plugin too, when it is started under its name.
func TestMain(m *testing.M) {
	posix.Main()
	if filepath.Base(os.Args[0]) == wire.BinaryPrefix+"local" {
		sdk.Serve(local.Plugin("test"))
	}
	os.Exit(m.Run())
}

// newHost makes a host over one root: in process, or over plugins in dir.
func newHost(t testing.TB, root, pluginDir string) *host.Host {
	t.Helper()
	provider := host.Provider{Plugin: "local", Config: map[string]any{"root": root, "env": map[string]string{"LANG": "C", "CONFIGURED": "yes"}}}
	config := host.Config{DataDir: t.TempDir(), Providers: map[string]host.Provider{}}
	if pluginDir == "" {
		provider.Plugin, provider.InProcess = "", local.Plugin("test")
	} else {
		config.PluginDirs = []string{pluginDir}
	}
	config.Providers["local"], config.Providers["other"] = provider, provider
	h, err := host.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing the host: %v", err)
		}
	})
	return h
}

// pluginPID is that of the process that serves local, 0 without one.
func pluginPID(h workspace.Host) int {
	for _, status := range h.(*host.Host).Providers() {
		if status.Name == "local" {
			return status.PID
		}
	}
	return 0
}

func options(t *testing.T, root, pluginDir string) conformance.Options {
	h := newHost(t, root, pluginDir)
	return conformance.Options{
		Host:      h,
		Provider:  "local",
		Env:       map[string]string{"LANG": "C", "CONFIGURED": "yes"},
		OtherHost: func(t testing.TB) workspace.Host { return newHost(t, root, pluginDir) },
		Replace: func(t testing.TB, ref workspace.Ref) {
			files := filepath.Join(root, ref.ID, "files")
			if err := errors.Join(os.RemoveAll(files), os.Mkdir(files, 0o755)); err != nil {
				t.Fatal(err)
			}
		},
		Elsewhere: func(t testing.TB) (string, workspace.Ref) {
			if err := os.MkdirAll(filepath.Join(root, "theirs", "data"), 0o755); err != nil {
				t.Fatal(err)
			}
			return "theirs", workspace.Ref{Provider: "local", ID: "theirs"}
		},
	}
}

func check(t *testing.T, report *conformance.Report) {
	t.Helper()
	if report.Count(conformance.Checked) == 0 || report.Count(conformance.Deviates) > 0 {
		t.Errorf("%d rules checked, %d deviate", report.Count(conformance.Checked), report.Count(conformance.Deviates))
	}
}

func TestConformance(t *testing.T) {
	check(t, conformance.Test(t, options(t, filepath.Join(t.TempDir(), "root"), "")))
}

// TestConformanceInItsOwnProcess is through a plugin process.
func TestConformanceInItsOwnProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := exec.Command("cp", self, filepath.Join(dir, wire.BinaryPrefix+"local")).Run(); err != nil { // a link could not be told from the test
		t.Fatal(err)
	}
	opts := options(t, filepath.Join(t.TempDir(), "root"), dir)
	opts.Started = func(h workspace.Host) bool { return pluginPID(h) != 0 }
	opts.Restart = func(t testing.TB) {
		pid := pluginPID(opts.Host)
		if pid == 0 {
			return // it was killed already
		}
		plugin, err := os.FindProcess(pid)
		if err == nil {
			err = plugin.Kill()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check(t, conformance.Test(t, opts))
}

// newProvider makes one plugin process's provider.
func newProvider(t testing.TB, name, root string) sdk.Provider {
	t.Helper()
	p, err := local.Plugin("test").New(t.Context(), local.Config{Root: root}, sdk.Env{Provider: name})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func close(t testing.TB, ws sdk.Workspace) {
	t.Helper()
	if err := ws.(*posix.Workspace).Close(); err != nil {
		t.Error(err)
	}
}

func TestRacingCreatesMakeOne(t *testing.T) {
	root := t.TempDir()
	for _, req := range []sdk.CreateRequest{{Token: workspace.NewToken()}, {Token: workspace.NewToken(), Name: "shared"}} {
		const racers = 16
		incarnations := make([]string, racers)
		var wg sync.WaitGroup
		for i := range racers {
			p := newProvider(t, "local", root) // as in plugin processes of their own
			wg.Go(func() {
				ws, err := p.Create(context.WithoutCancel(t.Context()), req)
				if err != nil {
					t.Errorf("racer %d: %v", i, err)
					return
				}
				incarnations[i] = ws.Incarnation()
				close(t, ws)
			})
		}
		wg.Wait()
		if slices.Sort(incarnations); incarnations[0] == "" || incarnations[0] != incarnations[racers-1] {
			t.Errorf("%s: more than one workspace: %q", req.Key(), incarnations)
		}
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("left in the root: %v, %v", entries, err)
	}
}

func TestRefusesWhatItDidNotMake(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "root")
	p := newProvider(t, "local", root)
	other := newProvider(t, "other", root)
	ws, err := other.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: "theirs"})
	if err != nil {
		t.Fatal(err)
	}
	close(t, ws)
	if err := os.MkdirAll(filepath.Join(root, "foreign", "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "victim"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"theirs", "foreign", "link", "..", ".", "../root", "a/b", "/", "", "a\x00b", ".aside-x"} {
		if err := p.Destroy(t.Context(), id); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("Destroy(%q) = %v, want ErrInvalid", id, err)
		}
		if _, err := p.Attach(t.Context(), id); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("Attach(%q) = %v, want ErrInvalid", id, err)
		}
	}
	for _, path := range []string{"victim", "root/theirs/files", "root/foreign/files", "root/link"} {
		if _, err := os.Lstat(filepath.Join(base, path)); err != nil {
			t.Errorf("%s was touched: %v", path, err)
		}
	}
	if _, err := p.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: "theirs"}); !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("Create of another provider's name = %v, want ErrInvalid saying whose it is", err)
	}
}

func TestListsItsOwn(t *testing.T) {
	root := t.TempDir()
	p := newProvider(t, "local", root)
	other := newProvider(t, "other", root)
	labels := map[string]string{"team": "a"}
	before := time.Now()
	for _, made := range []struct {
		by  sdk.Provider
		req sdk.CreateRequest
	}{{p, sdk.CreateRequest{Token: workspace.NewToken(), Name: "mine", Labels: labels}}, {other, sdk.CreateRequest{Token: workspace.NewToken(), Name: "theirs"}}} {
		ws, err := made.by.Create(t.Context(), made.req)
		if err != nil {
			t.Fatal(err)
		}
		close(t, ws)
	}
	var infos []sdk.Info
	for info, err := range p.(sdk.Lister).List(t.Context(), workspace.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		infos = append(infos, info)
	}
	if len(infos) != 1 || infos[0].ID != "mine" || infos[0].Name != "mine" || infos[0].Labels["team"] != "a" || infos[0].Created.Before(before.Add(-time.Second)) {
		t.Errorf("listed %+v", infos)
	}
}

// TestDestroyTakesReadOnlyFolders is of what build tools leave, such as Go's
// module cache.
func TestDestroyTakesReadOnlyFolders(t *testing.T) {
	root := t.TempDir()
	p := newProvider(t, "local", root)
	ws, err := p.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(ws.WorkingDir(), "locked")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "f"), nil, 0o444), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	close(t, ws)
	for range 2 { // already gone is success
		if err := p.Destroy(t.Context(), "a"); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Errorf("left in the root: %v, %v", entries, err)
	}
	if _, err := p.Attach(t.Context(), "a"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("Attach after Destroy = %v, want ErrUnavailable", err)
	}
}

func TestSweepsWhatKilledPluginsLeft(t *testing.T) {
	root := t.TempDir()
	old, fresh := filepath.Join(root, ".aside-OLD"), filepath.Join(root, ".aside-NEW")
	if err := errors.Join(os.MkdirAll(filepath.Join(old, "files"), 0o755), os.Mkdir(fresh, 0o755), os.Chtimes(old, time.Time{}, time.Now().Add(-2*time.Hour))); err != nil {
		t.Fatal(err)
	}
	newProvider(t, "local", root)
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder left two hours ago is still there: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a folder that another plugin is making was removed: %v", err)
	}
}

func TestRecordIsPlainJSON(t *testing.T) {
	root := t.TempDir()
	p := newProvider(t, "local", root)
	ws, err := p.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: "a", Labels: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	close(t, ws)
	data, err := os.ReadFile(filepath.Join(root, "a", "workspace.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct {
		Provider, Name string
		Labels         map[string]string
	}
	if err := json.Unmarshal(data, &record); err != nil || record.Provider != "local" || record.Name != "a" || record.Labels["k"] != "v" {
		t.Errorf("record %s: %v", data, err)
	}
}
