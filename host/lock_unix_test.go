//go:build unix

package host_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// lockBed is a host with a plugin folder of its own and a lock file.
type lockBed struct {
	*host.Host
	dir  string
	lock *host.Lock
}

func newLockBed(t *testing.T, plugin string, provider host.Provider) *lockBed {
	t.Helper()
	b := &lockBed{dir: t.TempDir()}
	b.install(t, plugin, "")
	lockFile := filepath.Join(b.dir, host.LockFileName)
	if err := os.WriteFile(lockFile, []byte("format: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.lock, err = host.ReadLock(lockFile); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	b.Host = newProcesses(t, map[string]host.Provider{plugin: provider}, func(c *host.Config) {
		c.PluginDirs, c.Lock, c.CacheDir = []string{b.dir}, b.lock, cache
	})
	return b
}

// install puts another build of a plugin in its place: the same program, and some
// bytes after it that nobody reads.
func (b *lockBed) install(t *testing.T, plugin, build string) {
	t.Helper()
	name := "berth-provider-" + plugin
	data, err := os.ReadFile(filepath.Join(pluginDir(t), name))
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(b.dir, "next")
	if err := errors.Join(os.WriteFile(next, append(data, build...), 0o755), os.Rename(next, filepath.Join(b.dir, name))); err != nil {
		t.Fatal(err)
	}
}

func (b *lockBed) status(t *testing.T) host.ProviderStatus {
	t.Helper()
	return b.Providers()[0]
}

// A plugin that runs follows its lock file at each swap, and at each restart.
func TestLockedPluginOverItsLife(t *testing.T) {
	b := newLockBed(t, "state", host.Provider{Config: map[string]any{"store": "file:" + filepath.Join(t.TempDir(), "db")}})
	ws, err := b.Workspace("state", workspace.WithName("w"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) error { return ws.WriteFile(t.Context(), "f", []byte(text)) }
	if err := write("unlocked"); err != nil || b.status(t).Locked {
		t.Fatalf("%v, %+v", err, b.status(t))
	}
	locked, err := b.LockPlugins(t.Context())
	if err != nil || len(locked) != 1 || locked[0].Before != "" {
		t.Fatalf("%+v, %v", locked, err)
	}
	first := locked[0].Digest
	if err := b.Reload(t.Context(), "state"); err != nil {
		t.Fatal(err)
	}
	if st := b.status(t); !st.Locked || st.Digest != first || st.Path != filepath.Join(b.dir, "berth-provider-state") {
		t.Fatalf("%+v", st)
	}

	// Another build does not take its place, neither by a swap nor after a crash.
	b.install(t, "state", "2")
	err = b.Reload(t.Context(), "state")
	if err == nil || !strings.Contains(err.Error(), "berth lock state") || !strings.Contains(b.status(t).SwapError, first) {
		t.Errorf("error %v, status %+v", err, b.status(t))
	}
	if err := write("still"); err != nil {
		t.Error(err)
	}
	crash(t, b)
	var plugin *workspace.PluginError
	if err := write("other bytes"); !errors.As(err, &plugin) || plugin.MayHaveExecuted || !strings.Contains(err.Error(), first) {
		t.Errorf("after a crash: %v", err)
	}
	if differences, err := b.CheckLock(); err != nil || len(differences) != 1 || !strings.Contains(differences[0].What, first) {
		t.Errorf("%+v, %v", differences, err)
	}

	// Back to what is locked, though the other stands there.
	back, err := b.RollbackPlugin("state")
	if err != nil || back.Digest != first || back.RolledBackFrom == "" {
		t.Fatalf("%+v, %v", back, err)
	}
	if err := b.Reload(t.Context(), "state"); err != nil {
		t.Fatal(err)
	}
	if st := b.status(t); st.Digest != first || st.RolledBackFrom != back.RolledBackFrom {
		t.Errorf("%+v", st)
	}
	crash(t, b)
	if err := write("back"); err != nil || b.status(t).Digest != first {
		t.Errorf("%v, %+v", err, b.status(t))
	}
	if _, err := b.RollbackPlugin("state"); err == nil || !strings.Contains(err.Error(), "rolled back already") {
		t.Errorf("a second rollback: %v", err)
	}

	// Forward again.
	locked, err = b.LockPlugins(t.Context(), "state", "state")
	if err != nil || len(locked) != 1 || locked[0].Before != first || locked[0].Digest != back.RolledBackFrom {
		t.Fatalf("%+v, %v", locked, err)
	}
	if err := errors.Join(b.Reload(t.Context(), "state"), write("forward")); err != nil {
		t.Fatal(err)
	}
	if st := b.status(t); st.Digest != locked[0].Digest || st.RolledBackFrom != "" {
		t.Errorf("%+v", st)
	}

	// A lock file that was there, and is gone, is not one that allows anything.
	if err := os.Remove(b.lock.Path()); err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(t.Context(), "state"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its lock file: %v", err)
	}
}

// crash kills the plugin and waits until that is known.
func crash(t *testing.T, b *lockBed) {
	t.Helper()
	pid := b.status(t).PID
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); b.status(t).PID == pid; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its death is not noticed")
		}
	}
}

// A locked plugin finds beside itself what was locked with it, and nothing else.
func TestLockedCompanions(t *testing.T) {
	b := newLockBed(t, "slow", host.Provider{Config: map[string]any{"root": t.TempDir()}})
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("slow-helper", "help")
	put("stranger", "evil")
	locked, err := b.LockPlugins(t.Context())
	if err != nil || len(locked) != 1 || len(locked[0].Companions) != 1 || locked[0].Companions["slow-helper"] == "" {
		t.Fatalf("%+v, %v", locked, err)
	}
	ws, err := b.Workspace("slow", workspace.WithName("w"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := ws.Stat(t.Context(), "beside:slow-helper"); err != nil || info.Size != 4 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, name := range []string{"stranger", "slow-rest"} {
		if _, err := ws.Stat(t.Context(), "beside:"+name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	put("slow-helper", "harm")
	err = b.Reload(t.Context(), "slow")
	if err == nil || !strings.Contains(err.Error(), "companion "+filepath.Join(b.dir, "slow-helper")+" has the digest") {
		t.Errorf("another companion: %v", err)
	}
	if err := os.Remove(filepath.Join(b.dir, "slow-helper")); err != nil {
		t.Fatal(err)
	}
	if differences, err := b.CheckLock("slow"); err != nil || len(differences) != 1 || !strings.Contains(differences[0].What, "companion slow-helper is missing") {
		t.Errorf("%+v, %v", differences, err)
	}
	// It runs without what stands there.
	if _, err := b.RollbackPlugin("slow"); err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(t.Context(), "slow"); err != nil {
		t.Fatal(err)
	}
	if info, err := ws.Stat(t.Context(), "beside:slow-helper"); err != nil || info.Size != 4 {
		t.Errorf("after a rollback: %+v, %v", info, err)
	}
}

// What a plugin names and was not there when it was locked is told when it comes.
func TestCompanionsThatComeLater(t *testing.T) {
	b := newLockBed(t, "slow", host.Provider{Config: map[string]any{"root": t.TempDir()}})
	locked, err := b.LockPlugins(t.Context())
	if err != nil || len(locked) != 1 || !slices.Equal(locked[0].Missing, []string{"slow-helper", "slow-rest"}) {
		t.Fatalf("%+v, %v", locked, err)
	}
	if differences, err := b.CheckLock(); err != nil || len(differences) > 0 {
		t.Errorf("%+v, %v", differences, err)
	}
	rest := filepath.Join(b.dir, "slow-rest")
	if err := os.WriteFile(rest, []byte("rest"), 0o644); err != nil {
		t.Fatal(err)
	}
	if differences, err := b.CheckLock(); err != nil || len(differences) != 1 || !strings.Contains(differences[0].What, rest+" was not there when it was locked") {
		t.Errorf("%+v, %v", differences, err)
	}
	if locked, err = b.LockPlugins(t.Context()); err != nil || len(locked[0].Companions) != 1 || !slices.Equal(locked[0].Missing, []string{"slow-helper"}) {
		t.Errorf("%+v, %v", locked, err)
	}
	if differences, err := b.CheckLock(); err != nil || len(differences) > 0 {
		t.Errorf("%+v, %v", differences, err)
	}
}

// Two hosts whose caches are one start the same plugin at the same time.
func TestTwoHostsShareACache(t *testing.T) {
	b := newLockBed(t, "state", host.Provider{})
	if _, err := b.LockPlugins(t.Context()); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	hosts := make([]*host.Host, 2)
	for i := range hosts {
		hosts[i] = newProcesses(t, map[string]host.Provider{"state": {}}, func(c *host.Config) {
			c.PluginDirs, c.Lock, c.CacheDir = []string{b.dir}, b.lock, cache
		})
	}
	errs := make(chan error, len(hosts))
	for _, h := range hosts {
		go func() {
			_, err := h.Check(t.Context(), "state")
			errs <- err
		}()
	}
	for range hosts {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	kept, err := filepath.Glob(filepath.Join(cache, "plugins", "sha256-*"))
	if err != nil || len(kept) != 1 {
		t.Errorf("%v, %v", kept, err)
	}
}

func TestWithoutALockFile(t *testing.T) {
	h := newProcesses(t, map[string]host.Provider{"state": {}})
	if _, err := h.LockPlugins(t.Context()); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("lock: %v", err)
	}
	if _, err := h.CheckLock(); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("check: %v", err)
	}
	if _, err := h.RollbackPlugin("state"); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("rollback: %v", err)
	}
}
