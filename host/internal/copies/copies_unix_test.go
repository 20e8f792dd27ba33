//go:build unix

package copies

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/internal/catalog"
)

// folder is a plugin folder with a binary and a companion.
func folder(t *testing.T, binary, helper string) (c Content, source func(string) string) {
	t.Helper()
	dir := t.TempDir()
	c = Content{Binary: "plugin", Files: map[string]string{}}
	for name, text := range map[string]string{"plugin": binary, "helper": helper} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		c.Files[name] = hex.EncodeToString(sum[:])
	}
	return c, func(name string) string { return filepath.Join(dir, name) }
}

func storeDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "cache", "plugins")
}

// hold holds a content and returns its folder.
func hold(t *testing.T, s *Store, c Content, source func(string) string) (*Copy, string) {
	t.Helper()
	kept, err := s.Hold(c, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kept.Release)
	return kept, filepath.Dir(kept.Path)
}

func TestHold(t *testing.T) {
	c, source := folder(t, "one", "help")
	s := New(storeDir(t))
	if _, err := s.Hold(c, nil); !errors.Is(err, ErrNotKept) {
		t.Errorf("nothing is kept yet: %v", err)
	}
	kept, dir := hold(t, s, c, source)
	if !kept.Made || kept.Path != s.Path(c) || !strings.HasPrefix(filepath.Base(dir), "sha256-"+c.Files["plugin"]) {
		t.Errorf("%+v", kept)
	}
	for name, want := range map[string]string{"plugin": "one", "helper": "help"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		info, statErr := os.Stat(filepath.Join(dir, name))
		if err != nil || statErr != nil || string(text) != want || info.Mode().Perm() != 0o500 {
			t.Errorf("%s: %q, %v, %v, %v", name, text, info.Mode(), err, statErr)
		}
	}
	for _, path := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if again, _ := hold(t, New(filepath.Dir(dir)), c, nil); again.Made || again.Path != kept.Path {
		t.Errorf("%+v", again)
	}
	other := Content{Binary: c.Binary, Files: map[string]string{"plugin": c.Files["plugin"]}}
	if other.Folder() == c.Folder() {
		t.Error("other companions, and the same folder")
	}
}

func TestFilesThatAreNotAsTheyMustBe(t *testing.T) {
	var c Content
	var source func(string) string
	s := New(storeDir(t))
	for name, spoil := range map[string]func() error{
		"another binary":    func() error { return os.WriteFile(source("plugin"), []byte("two"), 0o755) },
		"another companion": func() error { return os.WriteFile(source("helper"), []byte("two"), 0o755) },
		"no companion":      func() error { return os.Remove(source("helper")) },
		"a folder":          func() error { return errors.Join(os.Remove(source("plugin")), os.Mkdir(source("plugin"), 0o755)) },
	} {
		c, source = folder(t, "one", "help")
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if kept, err := s.Hold(c, source); err == nil {
			kept.Release()
			t.Errorf("%s: was copied", name)
		}
		entries, err := os.ReadDir(s.dir)
		if err != nil || len(entries) != 0 {
			t.Errorf("%s: left behind %v, %v", name, entries, err)
		}
	}
}

// A copy that is damaged is found out, though nothing but its bytes differs, and is
// made again where it can be.
func TestDamagedCopy(t *testing.T) {
	damage := func(t *testing.T, path string) {
		info, err := os.Stat(path)
		if err == nil {
			err = errors.Join(os.Chmod(path, 0o700), os.WriteFile(path, []byte("eno"), 0o700), os.Chmod(path, 0o500),
				os.Chtimes(path, info.ModTime(), info.ModTime()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, source := folder(t, "one", "help")
	s := New(storeDir(t))
	kept, dir := hold(t, s, c, source)
	awaitSettled(t, s, c, kept.Path)
	damage(t, kept.Path)
	var digest *DigestError
	if _, err := s.Hold(c, nil); !errors.As(err, &digest) || digest.Path != kept.Path {
		t.Errorf("a damaged one that cannot be made again: %v", err)
	}
	again, _ := hold(t, s, c, source)
	if text, err := os.ReadFile(again.Path); err != nil || string(text) != "one" || !again.Made {
		t.Errorf("%q, %v, %+v", text, err, again)
	}
	for name, spoil := range map[string]func() error{
		"a file is missing": func() error { return os.Remove(filepath.Join(dir, "helper")) },
		"a link": func() error {
			return errors.Join(os.Remove(again.Path), os.Symlink(source("plugin"), again.Path))
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Hold(c, nil); err == nil {
			t.Errorf("%s: not found out", name)
		}
		hold(t, s, c, source)
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// awaitSettled verifies a copy until that is remembered.
func awaitSettled(t *testing.T, s *Store, c Content, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		kept, err := s.Hold(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		kept.Release()
		s.mu.Lock()
		_, known := s.verified[path]
		s.mu.Unlock()
		if known || !remembers {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it is read each time")
		}
	}
}

func TestWhatOthersMayWriteIsRefused(t *testing.T) {
	c, source := folder(t, "one", "help")
	for name, change := range map[string]func(dir, file string) error{
		"the store":        func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
		"the sticky store": func(dir, _ string) error { return os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky) },
		"a way to it":      func(dir, _ string) error { return os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o777) },
		"the copy":         func(dir, _ string) error { return os.Chmod(dir, 0o770) },
		"a file":           func(_, file string) error { return os.Chmod(file, 0o720) },
	} {
		s := New(storeDir(t))
		kept, dir := hold(t, s, c, source)
		if err := change(dir, kept.Path); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Hold(c, source); !errors.As(err, new(*catalog.UntrustedError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	for name, of := range map[string]func(dir, file string) string{
		"the store": func(dir, _ string) string { return filepath.Dir(dir) },
		"the copy":  func(dir, _ string) string { return dir },
		"a file":    func(_, file string) string { return file },
	} {
		s := New(storeDir(t))
		kept, dir := hold(t, s, c, source)
		if err := os.Chown(of(dir, kept.Path), 4242, 4242); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Hold(c, source); !errors.As(err, new(*catalog.UntrustedError)) {
			t.Errorf("another user's, %s: %v", name, err)
		}
	}
}

// What is refused is left as it was: a folder of root's in another user's cache would
// keep that user from it.
func TestNothingIsMadeWhereOthersMayWrite(t *testing.T) {
	c, source := folder(t, "one", "help")
	changes := map[string]func(dir string) error{
		"anybody's folder": func(dir string) error { return os.Chmod(dir, 0o777) },
	}
	if os.Geteuid() == 0 {
		changes["another user's folder"] = func(dir string) error { return os.Chown(dir, 4242, 4242) }
	}
	for name, change := range changes {
		parent := t.TempDir()
		if err := change(parent); err != nil {
			t.Fatal(err)
		}
		s := New(filepath.Join(parent, "berth", "plugins"))
		if _, err := s.Hold(c, source); !errors.As(err, new(*catalog.UntrustedError)) {
			t.Errorf("%s: hold: %v", name, err)
		}
		if err := s.Register("/berth.lock"); !errors.As(err, new(*catalog.UntrustedError)) {
			t.Errorf("%s: register: %v", name, err)
		}
		if made, err := os.ReadDir(parent); err != nil || len(made) > 0 {
			t.Errorf("%s: has %v, %v", name, made, err)
		}
	}
}

// Two hosts, and more, fill one folder at once, and clean up in it.
func TestManyHostsAtOnce(t *testing.T) {
	dir := storeDir(t)
	contents, sources := make([]Content, 3), make([]func(string) string, 3)
	for i := range contents {
		contents[i], sources[i] = folder(t, fmt.Sprintf("binary %d", i), strings.Repeat("help", 10000))
	}
	var wg sync.WaitGroup
	for host := range 12 {
		wg.Go(func() {
			s := New(dir)
			for range 10 {
				i := host % len(contents)
				kept, err := s.Hold(contents[i], sources[i])
				if err != nil {
					t.Error(err)
					return
				}
				if text, err := os.ReadFile(kept.Path); err != nil || string(text) != fmt.Sprintf("binary %d", i) {
					t.Errorf("%q, %v", text, err)
				}
				if err := s.Prune(nothing); err != nil {
					t.Error(err)
				}
				if _, err := os.ReadFile(kept.Path); err != nil {
					t.Errorf("it was removed while it was held: %v", err)
				}
				kept.Release()
			}
		})
	}
	wg.Wait()
	if err := New(dir).Prune(nothing); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func nothing(string) ([]Content, error) { return nil, nil }

func TestPrune(t *testing.T) {
	s := New(storeDir(t))
	needed, neededSource := folder(t, "needed", "x")
	old, oldSource := folder(t, "old", "x")
	used, usedSource := folder(t, "used", "x")
	for _, lockFile := range []string{"/a/berth.lock", "/b/berth.lock", "/b/berth.lock"} {
		if err := s.Register(lockFile); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		Content
		source func(string) string
	}{{needed, neededSource}, {old, oldSource}} {
		kept, err := s.Hold(c.Content, c.source)
		if err != nil {
			t.Fatal(err)
		}
		kept.Release()
	}
	inUse, err := s.Hold(used, usedSource)
	if err != nil {
		t.Fatal(err)
	}
	died, recent := filepath.Join(s.dir, newPrefix+"1"), filepath.Join(s.dir, newPrefix+"2")
	long := time.Now().Add(-2 * leftoverAge)
	if err := errors.Join(os.Mkdir(died, 0o700), os.Mkdir(recent, 0o700), os.Chtimes(died, long, long)); err != nil {
		t.Fatal(err)
	}
	names := func() string {
		var list []string
		entries, err := os.ReadDir(s.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			for name, c := range map[string]Content{"needed": needed, "old": old, "used": used} {
				if e.Name() == c.Folder() {
					list = append(list, name)
				}
			}
			if strings.HasPrefix(e.Name(), newPrefix) {
				list = append(list, e.Name())
			}
		}
		return strings.Join(list, " ")
	}
	has := func(want string) {
		t.Helper()
		got := strings.Fields(names())
		for _, name := range strings.Fields(want) {
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+name+" ") {
				t.Errorf("%s is gone, there is %v", name, got)
			}
		}
		if len(got) != len(strings.Fields(want)) {
			t.Errorf("there is %v, want %s", got, want)
		}
	}
	// A lock file that cannot be read may need anything.
	unreadable := errors.New("is not YAML")
	if err := s.Prune(func(string) ([]Content, error) { return nil, unreadable }); !errors.Is(err, unreadable) {
		t.Errorf("error %v", err)
	}
	has("needed old used .new-1 .new-2")
	needs := func(lockFile string) ([]Content, error) {
		if lockFile == "/b/berth.lock" {
			return []Content{needed}, nil
		}
		return nil, &fs.PathError{Op: "open", Path: lockFile, Err: fs.ErrNotExist}
	}
	if err := s.Prune(needs); err != nil {
		t.Fatal(err)
	}
	has("needed used .new-2")
	inUse.Release()
	if err := s.Prune(needs); err != nil {
		t.Fatal(err)
	}
	has("needed .new-2")
	if locks, err := os.ReadDir(filepath.Join(s.dir, locksFolder)); err != nil || len(locks) != 1 {
		t.Errorf("lock files: %v, %v", locks, err)
	}
}
