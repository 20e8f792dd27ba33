package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/workspace"
)

// Search tells what is in each folder, and takes what a start would.
func TestSearchTellsWhereAPluginIs(t *testing.T) {
	dir := t.TempDir()
	name := catalog.BinaryName("x")
	for file, mode := range map[string]os.FileMode{"b/" + name: 0o644, "c/" + name: 0o755, "d/" + name: 0o755} {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(file), mode)); err != nil {
			t.Fatal(err)
		}
	}
	h, err := New(Config{Dir: dir, PluginDirs: []string{"a", "b", "c", "d"}, Providers: map[string]Provider{"x": {}, "y": {Plugin: "gone"}, "z": {InProcess: nothing{}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	found, err := h.Search("x")
	if err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "c", name)
	reasons := []string{"", "is not executable (mode 0644)", "", ""}
	if runtime.GOOS == "windows" {
		taken, reasons[1] = filepath.Join(dir, "b", name), ""
	}
	digest := sha256.Sum256([]byte(filepath.ToSlash(strings.TrimPrefix(taken, dir+string(filepath.Separator)))))
	if found.Path != taken || found.Digest != "sha256:"+hex.EncodeToString(digest[:]) || found.Error != "" || found.Locked || found.Lock != "" {
		t.Errorf("%+v", found)
	}
	if len(found.Folders) < len(reasons) {
		t.Fatalf("folders: %+v", found.Folders)
	}
	for i, reason := range reasons {
		f := found.Folders[i]
		if f.Dir != filepath.Join(dir, string(rune('a'+i))) || (f.Path != "") != (i > 0) || !strings.Contains(f.Reason, reason) || (reason == "") != (f.Reason == "") {
			t.Errorf("folder %d: %+v, want %q", i, f, reason)
		}
	}
	if found, err = h.Search("y"); err != nil || found.Path != "" || !strings.Contains(found.Error, "no executable "+catalog.BinaryName("gone")) {
		t.Errorf("a plugin that is not there: %+v, %v", found, err)
	}
	if found, err = h.Search("z"); err != nil || len(found.Folders) > 0 {
		t.Errorf("a provider in this process: %+v, %v", found, err)
	}
	if _, err = h.Search("nobody"); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("no provider: %v", err)
	}
}

func TestLogLevelIsTold(t *testing.T) {
	h, err := New(Config{Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, IndependentLevels: true}), Providers: map[string]Provider{"x": {}}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	expect := func(want hclog.Level, wantOwn bool) {
		t.Helper()
		if level, own, err := h.LogLevel("x"); err != nil || level != want || own != wantOwn {
			t.Errorf("%v, %v, %v, want %v, %v", level, own, err, want, wantOwn)
		}
	}
	expect(hclog.Warn, false)
	if err := h.SetLogLevel("x", hclog.Trace); err != nil {
		t.Fatal(err)
	}
	expect(hclog.Trace, true)
	if err := h.SetLogLevel("x", hclog.NoLevel); err != nil {
		t.Fatal(err)
	}
	expect(hclog.Warn, false)
	if _, _, err := h.LogLevel("nobody"); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("no provider: %v", err)
	}
}
