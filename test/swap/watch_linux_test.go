package swap

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
)

func watching(c *host.Config, _ *host.Provider) { c.WatchPlugins = true }

// serves waits until a version does.
func (b *bed) serves(t testing.TB, version string) {
	t.Helper()
	poll(t, "version "+version+" to serve", func() bool { return b.status().Version == version })
}

func TestAFileRenamedIntoPlaceIsSwappedIn(t *testing.T) {
	b := newBed(t, plain, watching)
	ws := b.workspace(t)
	if err := ws.WriteFile(t.Context(), "f", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{versionB, versionA} {
		b.install(t, version)
		b.serves(t, version)
		b.alone(t)
		if got, err := ws.ReadFile(t.Context(), "f"); err != nil || string(got) != "kept" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestWatchingStartsNothing where no plugin runs.
func TestWatchingStartsNothing(t *testing.T) {
	other := newBed(t, lasting, watching) // whose swap tells that time has passed
	if _, err := other.Check(t.Context(), lasting); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, plain, watching)
	b.install(t, versionB)
	for _, version := range []string{versionB, versionA} {
		other.install(t, version)
		other.serves(t, version)
	}
	if st := b.status(); st.State != "stopped" || len(b.kinds(t)) > 0 {
		t.Errorf("%+v, %v", st, b.kinds(t))
	}
}

// TestWithoutWatchingNothingIsSwapped, which is the default of a program that embeds
// a host.
func TestWithoutWatchingNothingIsSwapped(t *testing.T) {
	b := newBed(t, plain)
	watched := newBed(t, lasting, watching)
	for _, x := range []*bed{b, watched} {
		if _, err := x.Check(t.Context(), x.plugin); err != nil {
			t.Fatal(err)
		}
		x.install(t, versionB)
	}
	watched.serves(t, versionB)
	if st := b.status(); st.Version != versionA {
		t.Errorf("%+v", st)
	}
}

// TestAFileThatIsBeingWrittenIsNotStarted before it is whole.
func TestAFileThatIsBeingWrittenIsNotStarted(t *testing.T) {
	b := newBed(t, plain, watching)
	if _, err := b.Check(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(binaries, versionB))
	if err != nil {
		t.Fatal(err)
	}
	// The running file cannot be written to: a copy begins with its removal.
	if err := os.Remove(b.path()); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(b.path(), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const pieces = 12
	for i := range pieces { // slowly: for longer than the watch looks twice
		if _, err := file.Write(whole[len(whole)*i/pieces : len(whole)*(i+1)/pieces]); err != nil {
			t.Fatal(err)
		}
		if i < pieces-1 {
			time.Sleep(300 * time.Millisecond)
		}
		if kinds := b.kinds(t); i < pieces-1 && slices.Contains(kinds, "swap") {
			t.Fatalf("it was started with %d of %d pieces: %v", i+1, pieces, kinds)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	b.serves(t, versionB)
	if kinds := b.kinds(t); slices.Contains(kinds, "swap-refused") {
		t.Errorf("events %v", kinds)
	}
}

func TestAPluginThatAppearsInAnEarlierFolderCounts(t *testing.T) {
	early := filepath.Join(t.TempDir(), "not-there-yet")
	b := newBed(t, plain, watching, func(c *host.Config, _ *host.Provider) { c.PluginDirs = append([]string{early}, c.PluginDirs...) })
	if _, err := b.Check(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(early, 0o755); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(early, wire.BinaryPrefix+plain)
	installAt(t, there, versionB)
	b.serves(t, versionB)
	if st := b.status(); st.Path != there {
		t.Errorf("%+v", st)
	}
	if err := os.Remove(there); err != nil { // the one in the later folder is it again
		t.Fatal(err)
	}
	b.serves(t, versionA)
}

func TestALinkThatLeadsElsewhereCounts(t *testing.T) {
	b := newBed(t, plain, watching)
	if _, err := b.Check(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(binaries, versionB), b.path()+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(b.path()+".new", b.path()); err != nil {
		t.Fatal(err)
	}
	b.serves(t, versionB)
}

// TestABinaryThatIsRemovedLeavesItsProcess, and one that does not come up is tried
// once, until it is replaced.
func TestWhatDoesNotComeUpIsNotTriedAtEachLook(t *testing.T) {
	b := newBed(t, plain, watching)
	if _, err := b.Check(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	watched := newBed(t, lasting, watching)
	if _, err := watched.Check(t.Context(), lasting); err != nil {
		t.Fatal(err)
	}
	pid := b.status().PID
	b.install(t, exits)
	poll(t, "its being refused", func() bool { return b.status().SwapError != "" })
	for _, version := range []string{versionB, versionA} { // meanwhile several looks are taken
		watched.install(t, version)
		watched.serves(t, version)
	}
	if err := os.Remove(b.path()); err != nil {
		t.Fatal(err)
	}
	watched.install(t, versionB)
	watched.serves(t, versionB)
	refused := 0
	for _, kind := range b.kinds(t) {
		if kind == "swap-refused" {
			refused++
		}
	}
	if st := b.status(); refused != 1 || st.PID != pid || st.Version != versionA {
		t.Errorf("refused %d times: %+v", refused, st)
	}
	b.install(t, versionB)
	b.serves(t, versionB)
}
