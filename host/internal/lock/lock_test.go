package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

func sum(c string) string { return strings.Repeat(c, 64) }

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	entry := Entry{
		// Digests that YAML takes for numbers, if it is let.
		Release:        Release{Version: "1.10", Protocol: 1, SHA256: sum("1"), Companions: map[string]string{"helper": strings.Repeat("1", 31) + "e" + strings.Repeat("1", 32)}, Missing: []string{"other"}},
		RolledBackFrom: sum("0"),
		Previous:       &Release{Version: "true", Protocol: 1, SHA256: "0" + strings.Repeat("7", 63)},
	}
	want := File{Format: format, Plugins: map[string]Plugin{
		"docker": {Platforms: map[string]Entry{"linux/amd64": entry, "darwin/arm64": {Release: entry.Release}}},
		"1":      {Platforms: map[string]Entry{"linux/amd64": entry}},
	}}
	err := Update(path, func(f *File) error { f.Plugins = want.Plugins; return nil })
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// What has not changed is written as it was, so that it shows no difference
	// where it is kept.
	if err := Update(path, func(*File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) || !strings.HasPrefix(string(again), heading) {
		t.Errorf("%v, first\n%s\nthen\n%s", err, first, again)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
}

// A file that was cut off anywhere, as by a full disk or a copy that broke off, does
// not unlock what it has lost.
func TestAFileThatIsCutOffIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	release := Release{Version: "v1", Protocol: 1, SHA256: sum("a"), Companions: map[string]string{"helper": sum("b")}}
	entry := Entry{Release: release, Previous: &release}
	if err := Update(path, func(f *File) error {
		for _, name := range []string{"docker", "local"} {
			f.Plugins[name] = Plugin{Platforms: map[string]Entry{"linux/amd64": entry}}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(string(whole), "\n")
	if f, err := parse([]byte(text)); err != nil || len(f.Plugins) != 2 {
		t.Fatalf("the whole file: %+v, %v", f, err)
	}
	for n := range text {
		if f, err := parse([]byte(text[:n])); err == nil {
			t.Errorf("its first %d bytes lock %d plugins:\n%s", n, len(f.Plugins), text[:n])
		}
	}
}

func TestReadIsStrict(t *testing.T) {
	plugin := func(entry string) string {
		return "format: 1\nplugins:\n  docker:\n    platforms:\n      linux/amd64:\n        " + entry + "\n"
	}
	good := fmt.Sprintf("{version: v1, protocol: 1, sha256: %s", sum("a"))
	tests := map[string]struct{ text, says string }{
		"empty":               {"", "is empty"},
		"no yaml":             {"{{{", "[1:2]"},
		"another format":      {"format: 2", "format: is 2, and this Berth reads 1"},
		"no format":           {"plugins: {}", "format: is missing"},
		"unknown key":         {"format: 1\nplugin: {}", "plugin"},
		"unknown inner key":   {plugin(good + ", sha: x}"), "sha"},
		"a key twice":         {"format: 1\nformat: 1", "format"},
		"wrong type":          {"format: one", "[1:9]"},
		"two documents":       {"format: 1\n---\nformat: 1\n", "second document"},
		"no name":             {"format: 1\nplugins: {Docker: {platforms: {linux/amd64: " + good + "}}}}", "plugins.Docker"},
		"no platform":         {"format: 1\nplugins: {docker: {}}", "plugins.docker.platforms: is missing"},
		"odd platform":        {"format: 1\nplugins: {docker: {platforms: {linux: " + good + "}}}}", "want a platform such as linux/amd64"},
		"no digest":           {plugin("{version: v1, protocol: 1}"), "linux/amd64.sha256: want a sha256 in hex"},
		"upper case":          {plugin("{version: v1, protocol: 1, sha256: " + sum("A") + "}"), "want a sha256 in hex"},
		"path as companion":   {plugin(good + ", companions: {../x: " + sum("b") + "}}"), "plain name"},
		"hidden companion":    {plugin(good + ", companions: {.x: " + sum("b") + "}}"), "plain name"},
		"path as missing":     {plugin(good + ", missing: [../x]}"), "linux/amd64.missing: companion"},
		"companion's digest":  {plugin(good + ", companions: {x: b}}"), "companions.x: want a sha256"},
		"rolled back":         {plugin(good + ", rolled_back_from: x}"), "rolled_back_from: want a sha256"},
		"previous, no digest": {plugin(good + ", previous: {version: v0, protocol: 1}}"), "linux/amd64.previous.sha256: want a sha256"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), FileName)
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Read(path)
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("%+v, error %v, want %q", f, err, test.says)
			}
			// It is not lost because it cannot be read.
			if err := Update(path, func(*File) error { return nil }); err == nil {
				t.Error("it was written over")
			}
		})
	}
	if _, err := Read(filepath.Join(t.TempDir(), FileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	path := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(path, []byte(plugin(good+"}")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("format: 1\nplugins: {docker: {platforms: {linux/amd64: {version: v1, protocol: 1, sha256: " + sum("a") + "}}}}")
	f.Add("format: &a 1\nplugins: *a")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parse([]byte(text))
		if err == nil && parsed.validate() != nil {
			t.Errorf("%+v is not valid", parsed)
		}
	})
}

func TestForwardAndBack(t *testing.T) {
	a, b, c := Release{Version: "a", SHA256: sum("a")}, Release{Version: "b", SHA256: sum("b")}, Release{Version: "c", SHA256: sum("c")}
	helped := Release{Version: "b", SHA256: sum("b"), Companions: map[string]string{"helper": sum("d")}}
	var none Entry
	locked := none.Forward(a)
	if locked.Previous != nil || !locked.SameBytes(a) {
		t.Errorf("first: %+v", locked)
	}
	if _, err := locked.Back(a); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("back with nothing before: %v", err)
	}
	if again := locked.Forward(a); again.Previous != nil {
		t.Errorf("the same again: %+v", again)
	}
	locked = locked.Forward(b)
	if locked.Version != "b" || locked.Previous == nil || locked.Previous.Version != "a" {
		t.Errorf("second: %+v", locked)
	}
	if again := locked.Forward(b); again.Previous.Version != "a" {
		t.Errorf("the same again: %+v", again)
	}
	for name, standing := range map[string]Release{"what is locked": b, "nothing": {}} {
		back, err := locked.Back(standing)
		if err != nil || back.Version != "a" || back.RolledBackFrom != b.SHA256 || back.Previous != nil {
			t.Errorf("back from %s: %+v, %v", name, back, err)
		}
		if _, err := back.Back(standing); !errors.Is(err, ErrRolledBack) {
			t.Errorf("a second time: %v", err)
		}
		if forth := back.Forward(b); forth.Version != "b" || forth.Previous.Version != "a" || forth.RolledBackFrom != "" {
			t.Errorf("forward: %+v", forth)
		}
	}
	for _, standing := range []Release{c, helped} {
		if back, err := locked.Back(standing); err != nil || back.Version != "b" || back.RolledBackFrom != standing.SHA256 || back.Previous.Version != "a" {
			t.Errorf("back from what is not locked: %+v, %v", back, err)
		}
	}
	if forth := locked.Forward(helped); forth.Previous == nil || forth.Previous.Companions != nil {
		t.Errorf("another companion: %+v", forth)
	}
}

// Those who change the file at the same time lose nothing of each other.
func TestUpdatesComeAfterEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	const writers = 20
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			err := Update(path, func(f *File) error {
				f.Plugins[fmt.Sprintf("p%d", i)] = Plugin{Platforms: map[string]Entry{"linux/amd64": {Release: Release{SHA256: sum("a")}}}}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if f, err := Read(path); err != nil || len(f.Plugins) != writers {
		t.Errorf("%d plugins, %v", len(f.Plugins), err)
	}
}

func TestUpdateGoesThroughALink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(real, []byte("format: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no")
	if err := Update(link, func(*File) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if err := Update(link, func(*File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if data, err := os.ReadFile(real); err != nil || !strings.HasPrefix(string(data), heading) {
		t.Errorf("%s, %v", data, err)
	}
}
