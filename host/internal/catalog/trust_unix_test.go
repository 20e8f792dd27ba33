//go:build unix

package catalog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// plugin lays out ways/to/bin/plugin below a folder that nobody else may enter.
func plugin(t *testing.T) (top, file string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(top, "ways", "to", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	return top, put(t, bin, "plugin", "x", 0o755)
}

type trustCase struct {
	name     string
	change   func(t *testing.T, top string)
	says     string // empty if it is trusted
	rootOnly bool   // only root can give files away
}

func TestTrust(t *testing.T) {
	uid, gid := os.Geteuid(), os.Getegid()
	const other = 4242 // no user's or group's on any machine that tests run on
	chmod := func(path string, mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, top string) {
			if err := os.Chmod(filepath.Join(top, path), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	chown := func(path string, uid, gid int) func(*testing.T, string) {
		return func(t *testing.T, top string) {
			if err := os.Lchown(filepath.Join(top, path), uid, gid); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []trustCase{
		{name: "as it is", change: func(*testing.T, string) {}},
		{name: "read only", change: chmod("ways/to/bin/plugin", 0o555)},
		{name: "anybody's file", change: chmod("ways/to/bin/plugin", 0o757), says: "/plugin has mode 0757 and may be written by anybody"},
		{name: "anybody's folder", change: chmod("ways/to/bin", 0o777), says: "/bin, which leads to it, has mode 0777 and may be written by anybody"},
		{name: "sticky folder of its own", change: chmod("ways/to/bin", 0o777|os.ModeSticky), says: "/bin, which leads to it, has mode 1777"},
		{name: "anybody's folder above", change: chmod("ways", 0o777), says: "/ways, which leads to it, has mode 0777"},
		{name: "sticky folder above", change: chmod("ways", 0o777|os.ModeSticky)},
		{name: "another group's file", change: func(t *testing.T, top string) {
			chown("ways/to/bin/plugin", uid, other)(t, top)
			chmod("ways/to/bin/plugin", 0o775)(t, top)
		}, says: "may be written by group 4242", rootOnly: true},
		{name: "another's file", change: chown("ways/to/bin/plugin", other, gid), says: "/plugin has mode 0755 and belongs to uid 4242", rootOnly: true},
		{name: "another's folder", change: chown("ways/to/bin", other, gid), says: "/bin, which leads to it, has mode 0755 and belongs to uid 4242", rootOnly: true},
		{name: "another's folder above", change: chown("ways", other, gid), says: "belongs to uid 4242", rootOnly: true},
	}
	ownGroup := trustCase{name: "this user's own group's file", change: chmod("ways/to/bin/plugin", 0o775)}
	if uid != gid || gid == 0 {
		ownGroup.says = "may be written by group"
	}
	for _, test := range append(tests, ownGroup) {
		if test.rootOnly && uid != 0 {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			top, file := plugin(t)
			test.change(t, top)
			err := CheckTrust(file)
			var untrusted *UntrustedError
			switch {
			case test.says == "" && err != nil:
				t.Error(err)
			case test.says == "":
			case !errors.As(err, &untrusted), !errors.Is(err, fs.ErrPermission), !strings.Contains(err.Error(), test.says), !strings.Contains(err.Error(), "ch"):
				t.Errorf("error %v, want %q and what to do", err, test.says)
			}
		})
	}
}

// Another user's file is none of ours, and root's is.
func TestTrustByOwner(t *testing.T) {
	_, file := plugin(t)
	other := trust{target: file, uid: uint32(os.Geteuid()) + 1}
	info, err := os.Lstat(file)
	if err != nil {
		t.Fatal(err)
	}
	err = other.check(file, info, false)
	if owner := info.Sys().(*syscall.Stat_t).Uid; (owner == 0) != (err == nil) {
		t.Errorf("a file of uid %d for uid %d: %v", owner, other.uid, err)
	}
}

func TestTrustFollowsLinks(t *testing.T) {
	top, file := plugin(t)
	bad, good := filepath.Join(top, "bad"), filepath.Join(top, "good")
	for _, dir := range []string{bad, good} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(bad, 0o777); err != nil {
		t.Fatal(err)
	}
	put(t, bad, "plugin", "x", 0o755)
	link := func(to, at string) string {
		at = filepath.Join(top, at)
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	tests := map[string]struct {
		path string
		bad  bool
	}{
		"to a good file":           {link(file, "good/absolute"), false},
		"relative":                 {link("../ways/to/bin/plugin", "good/relative"), false},
		"through a folder":         {filepath.Join(link("ways/to", "good-folder"), "bin", "plugin"), false},
		"to a bad folder":          {link(filepath.Join(bad, "plugin"), "good/bad"), true},
		"in a bad folder":          {link(file, "bad/link"), true},
		"through a bad folder":     {filepath.Join(link("bad", "good/../through"), "plugin"), true},
		"by dots out of a folder":  {link("../bad/../ways/to/bin/plugin", "good/dots"), true},
		"to what leads to nothing": {link("/nowhere/at/all", "good/dangling"), true},
		"to itself":                {link("loop", "good/loop"), true},
	}
	for name, test := range tests {
		if err := CheckTrust(test.path); (err != nil) != test.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := CheckTrust(filepath.Join(good, "loop")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	// Where anybody may put files, a link's owner may put another in its place.
	sticky := filepath.Join(top, "sticky")
	if err := os.Mkdir(sticky, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(sticky, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	way := filepath.Join(link(filepath.Dir(file), "sticky/way"), "plugin")
	if err := CheckTrust(way); err != nil {
		t.Errorf("our own link in a sticky folder: %v", err)
	}
	if err := os.Lchown(filepath.Join(sticky, "way"), 4242, 4242); err != nil {
		t.Fatal(err)
	}
	if err := CheckTrust(way); !errors.As(err, new(*UntrustedError)) {
		t.Errorf("another's link in a sticky folder: %v", err)
	}
}

func TestOpenTakesNothingButFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err := Open(fifo); err == nil {
		file.Close()
		t.Error("opened a FIFO")
	}
}

func TestPinnedBinaryIsThePin(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, fileName("docker"), "one", 0o755)
	found, err := Find("docker", []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if path, release, err := found.Open(); err != nil || path != found.Path {
		t.Errorf("%s, %v", path, err)
	} else {
		release()
	}
	pin := Pin{Digest: "sha256:00", Content: "a", Open: func() (string, func(), error) { return "/copy", func() {}, nil }}
	pinned := found.Pinned(pin)
	if path, _, err := pinned.Open(); err != nil || path != "/copy" || pinned.Path != found.Path {
		t.Errorf("%s, %s, %v", path, pinned.Path, err)
	}
	if digest, err := pinned.Digest(); err != nil || digest != "sha256:00" || pinned.KnownDigest() != digest {
		t.Errorf("digest %s, %v", digest, err)
	}
	if _, ok := found.Pin(); ok || found.Same(pinned) || pinned.Same(found) {
		t.Error("a binary is the same as one that is pinned")
	}
	other := pin
	other.RolledBackFrom = "sha256:11"
	if !pinned.Same(found.Pinned(pin)) || pinned.Same(found.Pinned(other)) {
		t.Error("pins are not told apart")
	}
}
