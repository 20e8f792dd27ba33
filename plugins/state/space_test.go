package state

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// TestADiskThatIsFullIsEmptiedByRemoving: what uploads may not fill is what a
// removal needs, and what was removed can be written again.
func TestADiskThatIsFullIsEmptiedByRemoving(t *testing.T) {
	p := newProvider(t, inFile(t), "notes")
	var left atomic.Int64
	left.Store(1 << 40)
	w := <-p.store.(*sqliteStore).write
	for _, c := range []*conn{w.durable, w.lazy} {
		c.space = func() (int64, error) { return left.Load(), nil }
	}
	p.store.(*sqliteStore).write <- w
	d := create(t, p, "")
	mustWrite(t, d, "small", "kept")
	mustWrite(t, d, "big", string(pattern(reserve+4<<20, 1)))

	left.Store(reserve) // nothing but the reserve
	for _, size := range []int{1, 2 * chunkSize} {
		if err := write(t.Context(), d, "more", pattern(size, 2), workspace.WriteOptions{}); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d bytes on a full disk: %v", size, err)
		}
	}
	wantFile(t, d, "small", "kept")
	if err := d.Remove(t.Context(), "big"); err != nil {
		t.Fatalf("removing on a full disk: %v", err)
	}
	left.Store(0) // the file keeps what was removed for itself
	eventually(t, "there is room again", func() bool {
		return write(t.Context(), d, "more", pattern(2*chunkSize, 2), workspace.WriteOptions{}) == nil
	})
	wantFile(t, d, "more", string(pattern(2*chunkSize, 2)))
}

func TestDiskSpace(t *testing.T) {
	if left, err := diskSpace(t.TempDir() + "/file"); err != nil || left <= 0 {
		t.Errorf("%d, %v", left, err)
	}
}
