package state

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// A worker is this test binary, started again to be killed: it does its job on
// the store until then, and says on stdout what it begins and what was
// acknowledged.
const (
	workerJob   = "BERTH_STATE_TEST_JOB"
	workerStore = "BERTH_STATE_TEST_STORE"
)

// work is a worker's main.
func work(job, store string) int {
	ctx := context.Background()
	p, err := open(ctx, Config{Store: "file:" + store}, sdk.Env{Provider: "notes"}, quick)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ws, err := p.Attach(ctx, "w")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	d := ws.(*document)
	kind, arg, _ := strings.Cut(job, ":")
	switch kind {
	case "load":
		var wg sync.WaitGroup
		for slot := range crashSlots {
			wg.Go(func() { load(ctx, d, arg, slot) })
		}
		wg.Wait()
	case "stage":
		w, err := d.Create(ctx, "/staged", workspace.WriteOptions{})
		if err == nil {
			_, err = w.Write(pattern(8*chunkSize, 1))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		say("staged")
		select {} // until it is killed
	}
	return 0
}

const (
	// crashSlots write at once, a file each.
	crashSlots = 3
	// crashRuns is how often a worker is killed under load.
	crashRuns = 25
)

var sayMu sync.Mutex

func say(words ...any) {
	sayMu.Lock()
	defer sayMu.Unlock()
	fmt.Println(words...) // one write: what a killed process said is whole lines
}

// load writes versions of a file, moves it, removes it, and so on, for ever.
// Sizes go from inline to staged ones.
func load(ctx context.Context, d *document, start string, slot int) {
	version, err := strconv.Atoi(start)
	if err != nil {
		say("fail", err)
		return
	}
	path := fmt.Sprintf("/slot%d/file", slot)
	for ; ; version++ {
		say("begin", slot, version)
		err := write(ctx, d, path, crashContent(version), workspace.WriteOptions{})
		if err == nil && version%5 == 4 { // over the file of the version before
			err = d.Rename(ctx, path, path+".moved")
		}
		if err == nil && version%5 == 4 {
			err = d.Rename(ctx, path+".moved", path)
		}
		if err != nil {
			say("fail", slot, err)
			return
		}
		say("done", slot, version)
	}
}

// crashContent begins with its version, and tells its size by it.
func crashContent(version int) []byte {
	size := []int{100, 5000, chunkSize + 1, 20, 3*chunkSize + 5}[version%5]
	data := pattern(size, byte(version))
	copy(data, fmt.Sprintf("%010d\n", version))
	return data
}

// worker starts one and returns its lines.
func worker(t *testing.T, job, store string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), workerJob+"="+job, workerStore+"="+store)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// TestNoAcknowledgedWriteIsLost kills a process under load, many times, and
// holds what is in the store against what it said.
func TestNoAcknowledgedWriteIsLost(t *testing.T) {
	store := filepath.Join(t.TempDir(), "state.db")
	p := newProviderWith(t, Config{Store: "file:" + store}, "notes", burying)
	d := create(t, p, "w")
	next, acknowledged := 1, 0
	var begun, done map[int]int
	for run := range crashRuns {
		cmd, lines := worker(t, fmt.Sprintf("load:%d", next), store)
		begun, done = map[int]int{}, map[int]int{}
		// Killed after so many lines, each time at another point.
		for n := 0; lines.Scan(); n++ {
			var word string
			var slot, version int
			if _, err := fmt.Sscan(lines.Text(), &word, &slot, &version); err != nil {
				t.Fatalf("worker said %q", lines.Text())
			}
			switch word {
			case "begin":
				begun[slot] = version
			case "done":
				done[slot] = version
				acknowledged++
			default:
				t.Fatalf("worker said %q", lines.Text())
			}
			next = max(next, version+1)
			if n == 10+3*run {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || lines.Err() != nil {
			t.Fatalf("worker: %v, %v", err, lines.Err())
		}
		for slot := range crashSlots {
			checkCrashed(t, d, slot, done[slot], begun[slot])
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills, %d acknowledged writes", crashRuns, acknowledged)
	var ok string
	err := p.store.view(t.Context(), func(t tx) error {
		_, err := t.(sqliteTx).c.row("PRAGMA integrity_check", nil, &ok)
		return err
	})
	if err != nil || ok != "ok" {
		t.Fatalf("integrity: %q, %v", ok, err)
	}
	eventually(t, "what the killed processes staged is reclaimed", func() bool {
		return count(t, p, "SELECT (SELECT count(*) FROM staged) + (SELECT count(*) FROM garbage) + (SELECT count(*) FROM blobs WHERE id NOT IN (SELECT blob FROM extents))") == 0
	})
	for slot := range crashSlots { // and nothing else was
		checkCrashed(t, d, slot, done[slot], begun[slot])
	}
	if orphans := count(t, p, "SELECT count(*) FROM extents WHERE content NOT IN (SELECT content FROM nodes)"); orphans != 0 {
		t.Errorf("%d pieces belong to no file", orphans)
	}
	if used := count(t, p, "SELECT used - (SELECT sum(size) FROM nodes) FROM workspaces"); used != 0 {
		t.Errorf("the workspace counts %d bytes more than its files have", used)
	}
}

// checkCrashed checks a slot of a killed worker: its file is whole, and of the
// last version acknowledged or of the one begun after it.
func checkCrashed(t *testing.T, d *document, slot, done, begun int) {
	t.Helper()
	path := fmt.Sprintf("/slot%d/file", slot)
	data, err := read(t.Context(), d, path, workspace.ReadOptions{})
	if errors.Is(err, fs.ErrNotExist) && begun%5 == 4 { // between its two renames
		path += ".moved"
		data, err = read(t.Context(), d, path, workspace.ReadOptions{})
	}
	if errors.Is(err, fs.ErrNotExist) && done == 0 {
		return
	}
	if err != nil {
		t.Errorf("slot %d, %d acknowledged: %v", slot, done, err)
		return
	}
	var version int
	if _, err := fmt.Sscanf(string(data[:min(len(data), 11)]), "%010d\n", &version); err != nil {
		t.Errorf("slot %d: holds %q", slot, data[:min(len(data), 20)])
		return
	}
	if done > 0 && version != done && version != begun || string(data) != string(crashContent(version)) {
		t.Errorf("slot %d: version %d of %d bytes, want %d (acknowledged) or %d (begun)", slot, version, len(data), done, begun)
	}
}

func TestACrashWhileStagingLeaksNothing(t *testing.T) {
	store := filepath.Join(t.TempDir(), "state.db")
	p := newProviderWith(t, Config{Store: "file:" + store}, "notes", burying)
	create(t, p, "w")
	var pages int64
	for run := range 3 {
		cmd, lines := worker(t, "stage:", store)
		if !lines.Scan() || lines.Text() != "staged" {
			t.Fatalf("worker said %q", lines.Text())
		}
		if n := count(t, p, "SELECT count(*) FROM blobs"); n != 8 {
			t.Fatalf("%d pieces are staged, want 8", n)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		eventually(t, "the staged pieces are reclaimed", func() bool {
			return count(t, p, "SELECT (SELECT count(*) FROM blobs) + (SELECT count(*) FROM staged)") == 0
		})
		now := count(t, p, "PRAGMA page_count")
		if run > 0 && now > pages {
			t.Errorf("the file grew from %d to %d pages", pages, now)
		}
		pages = now
	}
}

// A session that lives keeps what it stages and what it reads, however long
// others sweep.
func TestALivingSessionIsLeftAlone(t *testing.T) {
	config := inFile(t)
	a, b := newProviderWith(t, config, "notes", burying), newProviderWith(t, config, "notes", burying)
	d := create(t, a, "w")
	data := string(pattern(6*chunkSize, 3))
	mustWrite(t, d, "/read", data)
	other := must(b.Attach(t.Context(), "w"))(t).(*document)
	r, err := other.Open(t.Context(), "/read", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := other.Create(t.Context(), "/write", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, d, "/read", "new") // what r reads is garbage now
	if err := d.Remove(t.Context(), "/read"); err != nil {
		t.Fatal(err)
	}
	quiet := time.Now().Add(2 * burying.interval * time.Duration(burying.missed))
	eventually(t, "many sweeps", func() bool { return time.Now().After(quiet) })
	got := make([]byte, 0, len(data))
	for buf := make([]byte, 1000); ; {
		n, err := r.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			break
		}
	}
	if string(got) != data {
		t.Errorf("the reader got %d bytes, want %d", len(got), len(data))
	}
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	wantFile(t, d, "/write", data)
	eventually(t, "what was read is reclaimed", func() bool {
		return count(t, a, "SELECT (SELECT count(*) FROM blobs) + (SELECT count(*) FROM garbage)") == 6
	})
}
