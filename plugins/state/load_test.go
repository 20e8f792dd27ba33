package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestAStalledUploadDelaysNobody has one that stopped in mid-way, and one more
// that goes on, while small writes are made and measured. That none of them
// waits for the upload's end is the promise; the times are for the reader.
func TestAStalledUploadDelaysNobody(t *testing.T) {
	config := inFile(t)
	a, b := newProvider(t, config, "notes"), newProvider(t, config, "notes")
	d := create(t, a, "w")
	other := must(b.Attach(t.Context(), "w"))(t).(*document)
	const size = 64 << 20 // of what a stalled upload of 256 MiB has sent
	stalled, err := d.Create(t.Context(), "/big", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	chunk := pattern(1<<20, 7)
	for range size / len(chunk) {
		if _, err := stalled.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	measure := func(what string) {
		for name, d := range map[string]*document{"the same process": d, "another process": other} {
			times := make([]time.Duration, 0, 50)
			for i := range cap(times) {
				began := time.Now()
				mustWrite(t, d, fmt.Sprintf("/small%d", i), "x")
				if _, err := d.Stat(t.Context(), fmt.Sprintf("/small%d", i)); err != nil {
					t.Fatal(err)
				}
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			t.Logf("%s, from %s: a small write takes %v (median), %v (most)", what, name, times[len(times)/2], times[len(times)-1])
			if _, err := d.Stat(t.Context(), "/big"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("half an upload shows: %v", err)
			}
		}
	}
	measure("beside a stalled upload")
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		w, err := d.Create(ctx, "/endless", workspace.WriteOptions{})
		for err == nil {
			_, err = w.Write(chunk)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the upload ended by itself: %v", err)
		}
	})
	measure("beside a busy upload")
	stop()
	wg.Wait()
	if err := stalled.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := other.Stat(t.Context(), "/big"); err != nil || info.Size != size {
		t.Fatalf("published: %+v, %v", info, err)
	}
	if n := count(t, a, "SELECT count(*) FROM staged"); n != 0 {
		t.Errorf("%d uploads still count as staged", n) // and would be reclaimed with their session
	}
	eventually(t, "the aborted upload is reclaimed", func() bool {
		return count(t, a, "SELECT count(*) FROM blobs WHERE id NOT IN (SELECT blob FROM extents WHERE content IN (SELECT content FROM nodes))") == 0
	})
}

func TestAnAbortedWriteLeavesTheFile(t *testing.T) {
	eachStore(t, func(t *testing.T, d *document) {
		for _, size := range []int{1, 3 * chunkSize} {
			mustWrite(t, d, "/f", "before")
			ends := map[string]func(workspace.FileWriter, context.CancelFunc) error{
				"abort": func(w workspace.FileWriter, _ context.CancelFunc) error { return errors.Join(w.Abort(), w.Close()) },
				"cancel": func(w workspace.FileWriter, cancel context.CancelFunc) error {
					cancel()
					if err := w.Close(); !errors.Is(err, context.Canceled) {
						return fmt.Errorf("close: %w", err)
					}
					return nil
				},
				"cancel and forget": func(_ workspace.FileWriter, cancel context.CancelFunc) error { cancel(); return nil },
			}
			for name, end := range ends {
				ctx, cancel := context.WithCancel(t.Context())
				w, err := d.Create(ctx, "/f", workspace.WriteOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(pattern(size, 1)); err != nil {
					t.Fatal(err)
				}
				if err := end(w, cancel); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				cancel()
				wantFile(t, d, "/f", "before")
			}
			eventually(t, "nothing stays staged", func() bool {
				var left bool
				err := d.store.view(t.Context(), func(t tx) error {
					uploads, err := t.staged()
					waste, err2 := t.garbage(0, 1)
					left = len(uploads)+len(waste) > 0
					return errors.Join(err, err2)
				})
				return err == nil && !left
			})
		}
	})
}

// TestTwoProcessesAtOnce has both append, create exclusively and rename in one
// directory, and holds the outcome against what each was told.
func TestTwoProcessesAtOnce(t *testing.T) {
	config := inFile(t)
	a, b := newProvider(t, config, "notes"), newProvider(t, config, "notes")
	d := create(t, a, "w")
	docs := []*document{d, must(b.Attach(t.Context(), "w"))(t).(*document)}
	const rounds, each = 12, 3
	var mu sync.Mutex
	winners := map[int]int{}
	var wg sync.WaitGroup
	for i := range 2 * each {
		doc := docs[i%2]
		wg.Go(func() {
			for n := range rounds {
				line := fmt.Sprintf("%d:%d\n", i, n)
				if err := write(t.Context(), doc, "/log", []byte(line), workspace.WriteOptions{Append: true}); err != nil {
					t.Errorf("append: %v", err)
				}
				err := write(t.Context(), doc, fmt.Sprintf("/lock/%d", n), []byte(line), workspace.WriteOptions{Exclusive: true})
				switch {
				case err == nil:
					mu.Lock()
					winners[n]++
					mu.Unlock()
				case !errors.Is(err, fs.ErrExist):
					t.Errorf("exclusive: %v", err)
				}
				own := fmt.Sprintf("/tmp%d", i)
				err = write(t.Context(), doc, own, pattern(2*chunkSize, byte(i)), workspace.WriteOptions{})
				if err == nil {
					err = doc.Rename(t.Context(), own, "/shared")
				}
				if err != nil {
					t.Errorf("replace: %v", err)
				}
				data, err := read(t.Context(), doc, "/shared", workspace.ReadOptions{})
				if err != nil || len(data) != 2*chunkSize || string(data) != string(pattern(2*chunkSize, data[0])) {
					t.Errorf("read of what is being replaced: %d bytes, %v", len(data), err)
				}
			}
		})
	}
	wg.Wait()
	for n := range rounds {
		if winners[n] != 1 {
			t.Errorf("%d made the file %d exclusively", winners[n], n)
		}
	}
	log, err := read(t.Context(), d, "/log", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var want int
	for i := range 2 * each {
		for n := range rounds {
			want += len(fmt.Sprintf("%d:%d\n", i, n))
		}
	}
	if len(log) != want {
		t.Errorf("the log has %d bytes, want %d", len(log), want)
	}
	eventually(t, "what was replaced is reclaimed", func() bool {
		return count(t, a, "SELECT (SELECT count(*) FROM garbage) + (SELECT count(*) FROM blobs WHERE id NOT IN (SELECT blob FROM extents WHERE content IN (SELECT content FROM nodes)))") == 0
	})
}

// fill makes n empty files in a directory, by the store's own means.
func fill(t testing.TB, d *document, dir string, n int) {
	t.Helper()
	if err := d.MkdirAll(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	err := d.update(t.Context(), "fill", dir, func(t tx, r record, root node) error {
		p, err := (&walker{tx: t, root: root}).walk(dir)
		if err != nil {
			return err
		}
		for i := range n {
			file := node{parent: p.node.id, name: fmt.Sprintf("file%06d", i), kind: kindFile, mode: 0o644, modTime: time.Now()}
			if err := t.insertNode(&file); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAHundredThousandEntries(t *testing.T) {
	const n = 100_000
	p := newProvider(t, inFile(t), "notes")
	d := create(t, p, "w")
	fill(t, d, "/tree/many", n)
	mustWrite(t, d, "/tree/other", "x")
	timed := func(what string, do func()) {
		began := time.Now()
		do()
		t.Logf("%s: %v", what, time.Since(began))
	}
	timed("list", func() {
		list, err := d.ReadDir(t.Context(), "/tree/many")
		if err != nil || len(list) != n || list[n-1].Name != fmt.Sprintf("file%06d", n-1) {
			t.Fatalf("%d listed, %v", len(list), err)
		}
	})
	timed("rename", func() {
		if err := d.Rename(t.Context(), "/tree", "/moved"); err != nil {
			t.Fatal(err)
		}
	})
	timed("remove", func() {
		if err := d.Remove(t.Context(), "/moved"); err != nil {
			t.Fatal(err)
		}
	})
	if list, err := d.ReadDir(t.Context(), "/"); err != nil || len(list) != 0 {
		t.Fatalf("after the removal: %d entries, %v", len(list), err)
	}
	timed("reclaim", func() {
		// Not a count of all entries, which would slow down what it waits for.
		eventually(t, "the removed entries are reclaimed", func() bool {
			return count(t, p, "SELECT EXISTS (SELECT 1 FROM garbage)") == 0
		})
		if left := count(t, p, "SELECT count(*) FROM nodes"); left != 1 {
			t.Errorf("%d entries are left", left)
		}
	})
}

func TestAStoreThatIsClosedWhileItIsUsed(t *testing.T) {
	config := inFile(t)
	p := newProvider(t, config, "notes")
	d := create(t, p, "w")
	w, err := d.Create(t.Context(), "/f", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(pattern(2*chunkSize, 0)); err != nil {
		t.Fatal(err)
	}
	next, err := open(t.Context(), config, sdk.Env{Provider: "notes"}, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil {
		t.Fatal("an upload was published by a store that is closed")
	}
	if _, err := d.Stat(t.Context(), "/"); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("stat in a closed store: %v", err)
	}
	eventually(t, "what it staged is reclaimed", func() bool { return count(t, next, "SELECT count(*) FROM blobs") == 0 })
}

func BenchmarkStat(b *testing.B) {
	d := newDocument(b)
	mustWrite(b, d, "/a/b/c/file", "x")
	for b.Loop() {
		if _, err := d.Stat(b.Context(), "/a/b/c/file"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 256 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			d := newDocument(b)
			data := pattern(min(size, 1<<20), 1)
			b.SetBytes(int64(size))
			for b.Loop() {
				w, err := d.Create(b.Context(), "/f", workspace.WriteOptions{})
				for n := 0; n < size && err == nil; n += len(data) {
					_, err = w.Write(data)
				}
				if err == nil {
					err = w.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 256 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			d := newDocument(b)
			data := pattern(min(size, 1<<20), 1)
			w, err := d.Create(b.Context(), "/f", workspace.WriteOptions{})
			for n := 0; n < size && err == nil; n += len(data) {
				_, err = w.Write(data)
			}
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			for b.Loop() {
				r, err := d.Open(b.Context(), "/f", workspace.ReadOptions{})
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, r); n != int64(size) || err != nil {
					b.Fatal(n, err)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
