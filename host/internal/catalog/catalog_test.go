package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// put makes a file in dir.
func put(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindTakesTheFirstExecutable(t *testing.T) {
	one, two, three := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, one, fileName("docker"), "", 0o644)
	want := put(t, two, fileName("docker"), "", 0o755)
	put(t, three, fileName("docker"), "", 0o755)
	if err := os.Mkdir(filepath.Join(one, fileName("state")), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(want, filepath.Join(three, fileName("state"))); err != nil {
		t.Fatal(err)
	}
	dirs := []string{"", "/nowhere", one, two, three, two}
	bin, err := Find("docker", dirs)
	if err != nil || bin.Path != want || bin.Name != "docker" {
		t.Errorf("%+v, %v", bin, err)
	}
	// A link to a program is one, and is shown as the link.
	bin, err = Find("state", dirs)
	if err != nil || bin.Path != filepath.Join(three, fileName("state")) {
		t.Errorf("%+v, %v", bin, err)
	}
}

func TestFindMakesPathsAbsolute(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, fileName("docker"), "", 0o755)
	t.Chdir(dir)
	bin, err := Find("docker", []string{"."})
	if err != nil || !filepath.IsAbs(bin.Path) {
		t.Errorf("%+v, %v", bin, err)
	}
}

func TestFindFailures(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, fileName("docker"), "", 0o755)
	put(t, dir, fileName("kubernetes"), "", 0o755)
	put(t, dir, fileName("plain"), "", 0o644)
	if err := os.Mkdir(filepath.Join(dir, fileName("folder")), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere/at/all", filepath.Join(dir, fileName("dangling"))); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		plugin string
		dirs   []string
		is     error
		says   []string
		not    string
	}{
		{plugin: "podman", dirs: []string{dir, "/nowhere"}, is: fs.ErrNotExist, says: []string{fileName("podman"), dir, "/nowhere"}, not: "did you mean"},
		{plugin: "dokcer", dirs: []string{dir}, is: fs.ErrNotExist, says: []string{"did you mean docker?"}},
		{plugin: "kube", dirs: []string{dir}, is: fs.ErrNotExist, says: []string{"did you mean kubernetes?"}},
		{plugin: "docker", dirs: nil, is: fs.ErrNotExist, says: []string{"no folder to look in"}},
		{plugin: "plain", dirs: []string{dir}, is: fs.ErrPermission, says: []string{"is not executable (mode 0644): chmod +x"}},
		{plugin: "folder", dirs: []string{dir}, is: fs.ErrPermission, says: []string{"is a folder"}},
		{plugin: "dangling", dirs: []string{dir}, is: fs.ErrNotExist, says: []string{dir}},
		{plugin: "../docker", dirs: []string{dir}, is: workspace.ErrInvalid},
		{plugin: "", dirs: []string{dir}, is: workspace.ErrInvalid},
	}
	for _, test := range tests {
		t.Run(test.plugin, func(t *testing.T) {
			_, err := Find(test.plugin, test.dirs)
			if !errors.Is(err, test.is) {
				t.Fatalf("error: %v, want %v", err, test.is)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if test.not != "" && strings.Contains(err.Error(), test.not) {
				t.Errorf("error %q", err)
			}
		})
	}
}

func TestList(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	put(t, one, fileName("state"), "", 0o755)
	put(t, one, fileName("plain"), "", 0o644)
	put(t, one, fileName("Upper"), "", 0o755)
	put(t, one, "berth", "", 0o755)
	put(t, two, fileName("state"), "", 0o755)
	put(t, two, fileName("docker"), "", 0o755)
	list := List([]string{"/nowhere", one, two})
	if len(list) != 2 || list[0].Name != "docker" || list[1].Name != "state" || list[1].Path != filepath.Join(one, fileName("state")) {
		t.Errorf("%+v", list)
	}
}

func TestDigest(t *testing.T) {
	dir := t.TempDir()
	path := put(t, dir, fileName("docker"), "one", 0o755)
	bin, err := Find("docker", []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if got := bin.KnownDigest(); got != "" {
		t.Errorf("known before it was computed: %s", got)
	}
	check := func(content string) {
		t.Helper()
		sum := sha256.Sum256([]byte(content))
		want := "sha256:" + hex.EncodeToString(sum[:])
		if got, err := bin.Digest(); err != nil || got != want || bin.KnownDigest() != want {
			t.Errorf("digest of %q: %s, %v; known %s", content, got, err, bin.KnownDigest())
		}
	}
	check("one")
	check("one")
	// Another file at the path, a changed one, and one whose size and time are
	// the same are all read again.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	put(t, dir, fileName("docker"), "two", 0o755)
	check("two")
	put(t, dir, fileName("docker"), "three", 0o755)
	check("three")
	hourAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, hourAgo, hourAgo); err != nil {
		t.Fatal(err)
	}
	check("three")
	other := put(t, dir, "new", "3hree", 0o755)
	if err := os.Chtimes(other, hourAgo, hourAgo); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	check("3hree")
	again, err := Find("docker", []string{dir})
	if err != nil || again.Same(bin) {
		t.Errorf("a replaced file is the same: %v", err)
	}
	if later, err := Find("docker", []string{dir}); err != nil || !later.Same(again) {
		t.Errorf("an unchanged file is not the same: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := bin.Digest(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error: %v", err)
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"docker", "docker", 0}, {"dokcer", "docker", 2}, {"kitten", "sitting", 3}} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%s to %s: %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
