//go:build unix

package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/copies"
	"github.com/berth-dev/berth/host/internal/lock"
)

// swaps is how often a file is swapped between its check and its execution.
const swaps = 1000

// Bytes that were not verified never run: a file that is swapped after it was looked
// at, by a rename or in place, is either noticed or makes no difference.
func TestNothingUnverifiedRuns(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, catalog.BinaryName("acme"))
	const good, evil = "#!/bin/sh\necho good\n", "#!/bin/sh\necho evil\n"
	sum := sha256.Sum256([]byte(good))
	lockFile := filepath.Join(dir, LockFileName)
	err := lock.Update(lockFile, func(f *lock.File) error {
		f.Plugins["acme"] = lock.Plugin{Platforms: map[string]lock.Entry{platform: {Release: lock.Release{SHA256: hex.EncodeToString(sum[:])}}}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := ReadLock(lockFile)
	if err != nil {
		t.Fatal(err)
	}
	byRename := func(text string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o755), os.Rename(next, path)); err != nil {
			t.Fatal(err)
		}
	}
	inPlace := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := newPins(l, []string{dir}, false, cache)
	fill := func() {
		t.Helper()
		byRename(good)
		bin, err := p.find("acme")
		if err != nil {
			t.Fatal(err)
		}
		_, release, err := bin.Open()
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	var ran, refused int
	for i := range swaps {
		swap := byRename
		if i%2 == 1 {
			swap = inPlace
		}
		fresh := i%4 >= 2 // no copy is kept yet
		if !fresh {
			fill()
		} else if err := os.RemoveAll(cache); err != nil {
			t.Fatal(err)
		}
		byRename(good)
		bin, err := p.find("acme")
		if err != nil {
			t.Fatal(err)
		}
		swap(evil) // after the check
		exe, release, err := bin.Open()
		if err != nil {
			var digest *copies.DigestError
			if !fresh || !errors.As(err, &digest) || digest.Path != path {
				t.Fatalf("swap %d: %v", i, err)
			}
			refused++
			continue
		}
		if fresh {
			t.Fatalf("swap %d: other bytes were copied", i)
		}
		swap(good)
		swap(evil) // right before the execution
		out, err := exec.Command(exe).Output()
		release()
		if err != nil || string(out) != "good\n" {
			t.Fatalf("swap %d: %s printed %q, %v", i, exe, out, err)
		}
		ran++
		// What stands there now is found out by the next look.
		if _, err := p.find("acme"); err == nil || !strings.Contains(err.Error(), "berth plugin rollback acme") {
			t.Fatalf("swap %d: %v", i, err)
		}
	}
	if ran != swaps/2 || refused != swaps/2 {
		t.Errorf("%d ran, %d were refused", ran, refused)
	}
}
