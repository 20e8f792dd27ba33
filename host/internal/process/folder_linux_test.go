package process

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/wire"
)

func TestCheckBase(t *testing.T) {
	dir := shortTemp(t)
	tests := []struct {
		name   string
		mode   os.FileMode
		path   string
		refuse string
	}{
		{name: "ours", mode: 0o700},
		{name: "sticky", mode: 0o777 | os.ModeSticky},
		{name: "others may change it", mode: 0o777, refuse: "can be changed by others"},
		{name: "missing", path: "/nowhere", refuse: "no such file"},
		{name: "a file", path: os.Args[0], refuse: ""},
		{name: "too long", path: "/" + strings.Repeat("x", 60), refuse: "too long"},
	}
	tests[4].refuse = "not a folder"
	tests[4].path = filepath.Join(dir, "f")
	if err := os.WriteFile(tests[4].path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			base := test.path
			if base == "" {
				base = dir
				if err := os.Chmod(dir, test.mode); err != nil {
					t.Fatal(err)
				}
			}
			err := checkBase(base)
			if test.refuse == "" && err != nil || test.refuse != "" && (err == nil || !strings.Contains(err.Error(), test.refuse)) {
				t.Errorf("error: %v, want %q", err, test.refuse)
			}
		})
	}
}

func TestSocketPathsFit(t *testing.T) {
	longest := strings.Repeat("b", maxSocketPath-socketTail) + "/" + folderPrefix + "4194304-4294967295/plugin-dir4294967295/plugin4294967295"
	if len(longest) > maxSocketPath {
		t.Errorf("%d characters", len(longest))
	}
	f, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer f.remove()
	if info, err := os.Stat(f.path); err != nil || info.Mode() != os.ModeDir|0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

// Hosts that start at the same time sweep nothing of each other.
func TestSweepRaces(t *testing.T) {
	t.Setenv("TMPDIR", shortTemp(t))
	t.Setenv("XDG_RUNTIME_DIR", "")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				sweep()
				f, err := newFolder()
				if err != nil {
					t.Error(err)
					return
				}
				sweep()
				if !sameAs(f.lock) {
					t.Error("swept while it was held")
				}
				f.remove()
			}
		})
	}
	all.Wait()
	if left := socketFolders(t, os.TempDir()); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestSweepTakesWhatIsAbandoned(t *testing.T) {
	base := shortTemp(t)
	t.Setenv("TMPDIR", base)
	t.Setenv("XDG_RUNTIME_DIR", "")
	hourAgo := time.Now().Add(-time.Hour)
	for name, locked := range map[string]bool{"no-lock": false, "lock": true} {
		dir := filepath.Join(base, folderPrefix+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if locked {
			if err := os.WriteFile(filepath.Join(dir, lockName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(dir, hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
	}
	young := filepath.Join(base, folderPrefix+"young")
	other := filepath.Join(base, "other")
	for _, dir := range []string{young, other} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if left := socketFolders(t, base); len(left) != 2 {
		t.Errorf("left: %q", left)
	}
}

func TestPeerOfAnotherUserIsRefused(t *testing.T) {
	path := filepath.Join(shortTemp(t), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := checkPeer(conn); err != nil {
		t.Errorf("our own: %v", err)
	}
	if err := wire.CheckPeer(conn, os.Geteuid()+1); err == nil || !strings.Contains(err.Error(), "belongs to uid") {
		t.Errorf("another's: %v", err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	other, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := checkPeer(other); err == nil {
		t.Error("a TCP peer was accepted")
	}
}
