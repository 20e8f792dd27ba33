package swap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/host"
)

// locking has a host keep to a lock file.
func locking(t *testing.T) func(*host.Config, *host.Provider) {
	t.Helper()
	path := filepath.Join(t.TempDir(), host.LockFileName)
	if err := os.WriteFile(path, []byte("plugins: {}\nformat: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := host.ReadLock(path)
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	return func(c *host.Config, _ *host.Provider) { c.Lock, c.CacheDir = lock, cache }
}

// TestWhatIsNotLockedIsToldOnce in status and events, and no more when it is gone.
func TestWhatIsNotLockedIsToldOnce(t *testing.T) {
	b := newBed(t, plain, watching, locking(t))
	if _, err := b.LockPlugins(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Check(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	watched := newBed(t, lasting, watching) // whose swaps tell that time has passed
	if _, err := watched.Check(t.Context(), lasting); err != nil {
		t.Fatal(err)
	}
	b.install(t, versionB)
	poll(t, "its being told", func() bool { return b.status().SwapError != "" })
	if st := b.status(); st.Version != versionA || !strings.Contains(st.SwapError, "berth lock "+plain) {
		t.Errorf("%+v", st)
	}
	for _, version := range []string{versionB, versionA} { // meanwhile several looks are taken
		watched.install(t, version)
		watched.serves(t, version)
	}
	refused := func() (n int) {
		for _, kind := range b.kinds(t) {
			if kind == "swap-refused" {
				n++
			}
		}
		return n
	}
	if refused() != 1 {
		t.Errorf("events %v", b.kinds(t))
	}
	b.install(t, versionA)
	poll(t, "the end of it", func() bool { return b.status().SwapError == "" })
	if kinds := b.kinds(t); !slices.Contains(kinds, "restored") {
		t.Errorf("events %v", kinds)
	}
	b.install(t, versionB)
	poll(t, "its being told again", func() bool { return b.status().SwapError != "" })
	if _, err := b.LockPlugins(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.serves(t, versionB)
	if st := b.status(); st.SwapError != "" || refused() != 2 {
		t.Errorf("%+v, %v", st, b.kinds(t))
	}
}

// TestWhatOthersMayWriteIsTold as well: it would not be started again.
func TestWhatOthersMayWriteIsTold(t *testing.T) {
	b := newBed(t, plain, watching)
	if _, err := b.Check(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	for _, open := range []bool{true, false} {
		mode := os.FileMode(0o700)
		if open {
			mode = 0o777
		}
		if err := os.Chmod(b.dir, mode); err != nil {
			t.Fatal(err)
		}
		poll(t, "its being told", func() bool { return strings.Contains(b.status().SwapError, "may be written by anybody") == open })
	}
}
