package conformance

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/conformance/internal/pattern"
	"github.com/berth-dev/berth/shared/workspace"
)

func streamChecks() []check {
	return []check{
		{name: "F8_LargeFilesStreamInBoundedMemory", needs: files, run: checkLargeFile},
		{name: "F8_ReadsFromAnyOffset", needs: files, run: checkOffsets},
	}
}

const (
	// mostHeld is what may be on the heap beyond what was there before, while a
	// large file passes: chunks, windows and a store's page cache.
	mostHeld = 24 << 20
	// heapEvery is how many bytes pass between two looks at the heap.
	heapEvery = 8 << 20
)

// heapWatch looks at what is live while bytes pass.
type heapWatch struct {
	before, most uint64
	next, passed int64
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func newHeapWatch() *heapWatch { return &heapWatch{before: liveHeap(), next: heapEvery} }

func (h *heapWatch) pass(n int) {
	if h.passed += int64(n); h.passed >= h.next {
		h.next += heapEvery
		h.most = max(h.most, liveHeap())
	}
}

// held is how much was live at the most, beyond what was before.
func (h *heapWatch) held() uint64 {
	h.most = max(h.most, liveHeap())
	return h.most - min(h.before, h.most)
}

// bounded repeats a transfer that held much: another test of this process may have
// done so meanwhile, but not each time.
func (e *env) bounded(t testing.TB, what string, transfer func() (held uint64)) {
	t.Helper()
	var held uint64
	for range e.opts.limits.transfers {
		if held = transfer(); held <= mostHeld {
			return
		}
	}
	t.Errorf("%s: %d MiB are held on this process's heap beyond what was, want at most %d MiB", what, held>>20, mostHeld>>20)
}

func (h *heapWatch) Write(b []byte) (int, error) {
	h.pass(len(b))
	return len(b), nil
}

// checkLargeFile measures this process, in which both ends of the wire are when
// the provider is served in process.
func checkLargeFile(t testing.TB, e *env) {
	ws, ctx := e.shared(t), e.context(t)
	size := e.opts.LargeFile
	name := join(e.dir(t), "large")
	e.bounded(t, "a large write", func() uint64 {
		heap := newHeapWatch()
		w, err := ws.Create(ctx, name, workspace.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.MultiWriter(w, heap), pattern.Reader(size)); err != nil {
			t.Fatalf("write: %v", err)
		}
		if err := w.Close(); err != nil {
			t.Fatalf("write: %v", err)
		}
		return heap.held()
	})
	e.bounded(t, "a large read", func() uint64 {
		heap := newHeapWatch()
		r, err := ws.Open(ctx, name, workspace.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got checkBytes
		_, err = io.Copy(io.MultiWriter(&got, heap), r)
		if cerr := r.Close(); err == nil {
			err = cerr
		}
		if err != nil || got.n != size || got.bad != "" {
			t.Errorf("read %d bytes, want %d; error %v; %s", got.n, size, err, got.bad)
		}
		if r.Info().Size != size {
			t.Errorf("the reader tells a size of %d, want %d", r.Info().Size, size)
		}
		return heap.held()
	})
	if err := ws.Remove(ctx, name); err != nil {
		t.Error(err)
	}
}

func checkOffsets(t testing.TB, e *env) {
	const size = 300_000
	ws, ctx := e.shared(t), e.context(t)
	name := join(e.dir(t), "file")
	all := pattern.Bytes(size)
	e.writeFile(t, name, string(all))
	for _, o := range []workspace.ReadOptions{
		{}, {Offset: 1}, {Offset: 131_072}, {Offset: 131_071, Length: 2}, {Offset: 200_001, Length: 50_000}, {Length: 1}, {Length: 131_073},
		{Offset: size - 1}, {Offset: size}, {Offset: size + 1}, {Offset: 1 << 40}, {Offset: size - 10, Length: 1000}, {Length: size}, {Length: 1 << 40},
	} {
		from := min(o.Offset, size)
		to := int64(size)
		if o.Length > 0 {
			to = min(from+o.Length, size)
		}
		r, err := ws.Open(ctx, name, o)
		if err != nil {
			t.Errorf("open at %+v: %v", o, err)
			continue
		}
		got, err := io.ReadAll(r)
		if cerr := r.Close(); err == nil {
			err = cerr
		}
		if err != nil || !bytes.Equal(got, all[from:to]) {
			t.Errorf("read at %+v: %s, error %v", o, difference(got, all[from:to]), err)
		}
		if r.Info().Size != size || r.Info().Name != "file" {
			t.Errorf("read at %+v: the reader tells %+v", o, r.Info())
		}
	}
	for _, o := range []workspace.ReadOptions{{Offset: -1}, {Length: -1}} {
		r, err := ws.Open(ctx, name, o)
		if err == nil {
			r.Close()
			t.Errorf("open at %+v succeeded, want %v", o, workspace.ErrInvalid)
		} else {
			wantPathError(t, "open at a negative place", err, name, workspace.ErrInvalid)
		}
	}
}
