//go:build unix

package host_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// stoppable has one workspace, a folder, which can be stopped and read meanwhile.
type stoppable struct {
	dir     string
	running atomic.Bool
	starts  atomic.Int32
	closed  atomic.Int32 // of the stored files that were opened
}

func (s *stoppable) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	return s.Attach(ctx, req.Key())
}

func (s *stoppable) Attach(_ context.Context, id string) (sdk.Workspace, error) {
	if !s.running.Swap(true) {
		s.starts.Add(1)
	}
	return s.open(id)
}

func (s *stoppable) open(id string) (*posix.Workspace, error) {
	return posix.Open(posix.Config{Dir: s.dir, ID: id, Incarnation: "first"})
}

func (s *stoppable) Destroy(context.Context, string) error { return nil }

func (s *stoppable) Stop(_ context.Context, id string) error {
	if id == "berth-gone" {
		return workspace.ErrUnavailable
	}
	s.running.Store(false)
	return nil
}

func (s *stoppable) OpenStored(_ context.Context, id string) (sdk.Stored, error) {
	ws, err := s.open(id)
	return &kept{ws, s}, err
}

// kept counts its closings.
type kept struct {
	*posix.Workspace
	s *stoppable
}

func (k *kept) Close() error {
	k.s.closed.Add(1)
	return k.Workspace.Close()
}

func TestStopKeepsFilesAndTheNextCallStarts(t *testing.T) {
	s := &stoppable{dir: t.TempDir()}
	h := sweepers(t, map[string]sdk.Provider{"one": s, "plain": plain{}})
	ws, err := h.Workspace("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.WriteFile(t.Context(), "a/b", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	for range 2 { // a second time is success too
		if err := h.Stop(t.Context(), ref); err != nil || s.running.Load() {
			t.Fatalf("stop: %v, running %v", err, s.running.Load())
		}
	}
	if data, err := ws.ReadFile(t.Context(), "a/b"); err != nil || string(data) != "kept" || s.starts.Load() != 2 {
		t.Errorf("after the stop: %q, %v, started %d times", data, err, s.starts.Load())
	}
	if err := h.Stop(t.Context(), workspace.Ref{Provider: "one", ID: "berth-gone"}); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("one that is gone: %v", err)
	}
	if err := h.Stop(t.Context(), workspace.Ref{Provider: "plain", ID: "x"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a provider that cannot: %v", err)
	}
}

func TestStoredFilesAreReadWithoutAStart(t *testing.T) {
	s := &stoppable{dir: t.TempDir()}
	h := sweepers(t, map[string]sdk.Provider{"one": s, "plain": plain{}})
	ws, err := h.Workspace("one")
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.WriteFile(t.Context(), "a/b", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	if err := h.Stop(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	files, err := h.OpenStored(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := files.Stat(t.Context(), "a/b"); err != nil || info.Size != 4 {
		t.Errorf("stat: %+v, %v", info, err)
	}
	if info, err := files.Lstat(t.Context(), "a"); err != nil || !info.IsDir() {
		t.Errorf("lstat: %+v, %v", info, err)
	}
	if entries, err := files.ReadDir(t.Context(), "."); err != nil || len(entries) != 1 {
		t.Errorf("readdir: %+v, %v", entries, err)
	}
	r, err := files.Open(t.Context(), "a/b", workspace.ReadOptions{Offset: 1})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != "ept" {
		t.Errorf("read: %q, %v", data, err)
	}
	_ = r.Close()
	if path, err := files.RealPath(t.Context(), "a/../a/b"); err != nil || !strings.HasSuffix(path, "/a/b") {
		t.Errorf("realpath: %q, %v", path, err)
	}
	if _, err := files.Stat(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if n := s.starts.Load(); n != 1 {
		t.Errorf("started %d times", n)
	}
	if _, err := h.OpenStored(t.Context(), workspace.Ref{Provider: "plain", ID: "x"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a provider that cannot: %v", err)
	}
	if err := h.Close(); err != nil { // which waits for those that are being closed
		t.Fatal(err)
	}
	if n := s.closed.Load(); n != 6 {
		t.Errorf("of six openings %d were closed", n)
	}
}

var _ interface {
	Stop(context.Context, workspace.Ref) error
	OpenStored(context.Context, workspace.Ref) (workspace.Stored, error)
} = (*host.Host)(nil)
