package shellfs_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/shared/workspace"
)

// errNotText is of what a service that speaks text would not carry.
var errNotText = errors.New("not ASCII text")

// service runs commands on this machine as a service does that only takes and gives
// text, and only when the command has ended.
type service struct {
	local
	limit int // on both streams
	calls atomic.Int64
	// before, if set, is asked before each call.
	before func(argv []string) error
}

func text(parts ...string) error {
	for _, part := range parts {
		for i := range len(part) {
			if c := part[i]; c >= 0x80 || c < ' ' && c != '\n' && c != '\t' {
				return fmt.Errorf("%w: %q", errNotText, part)
			}
		}
	}
	return nil
}

func (s *service) exec(ctx context.Context, argv []string) (stdout []byte, status int, stderr []byte, err error) {
	s.calls.Add(1)
	if err := text(argv...); err != nil {
		return nil, 0, nil, err
	}
	if s.before != nil {
		if err := s.before(argv); err != nil {
			return nil, 0, nil, err
		}
	}
	cmd := exec.CommandContext(ctx, s.shell, argv[1:]...)
	cmd.Env = []string{"PATH=" + s.path, "LANG=C.UTF-8"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	if err != nil {
		return nil, 0, nil, err
	}
	if out.Len()+errs.Len() > s.limit {
		return nil, 0, nil, &workspace.OutputLimitError{Limit: int64(s.limit)}
	}
	return out.Bytes(), cmd.ProcessState.ExitCode(), errs.Bytes(), text(out.String())
}

// withoutBase64 has the other tools of a shell.
func withoutBase64(t *testing.T, l local) local {
	t.Helper()
	tools := t.TempDir()
	for dir := range strings.SplitSeq(l.path, ":") {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.Name() != "base64" {
				_ = os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(tools, e.Name())) // the first of a name counts
			}
		}
	}
	if err := os.Chmod(filepath.Dir(tools), 0o755); err != nil {
		t.Fatal(err)
	}
	return local{l.shell, tools}
}

// TestPagedFiles is what the suite says about files that travel as text.
func TestPagedFiles(t *testing.T) {
	all := shells(t)
	delete(all, "bash")
	for name, shell := range all {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			plugin := sdk.Plugin[struct{}]{Name: "folders", Version: "test", Workspace: (*folder)(nil), New: func(context.Context, struct{}, sdk.Env) (sdk.Provider, error) {
				return folders{root, func(ctx context.Context, dir string) (*shellfs.FS, error) {
					s := &service{local: shell, limit: workspace.DefaultOutputLimit, before: func([]string) error { return there(dir) }}
					return shellfs.NewPaged(ctx, shellfs.PagedConfig{Exec: s.exec, WorkingDir: dir})
				}}, nil
			}}
			report := conformance.Test(t, conformance.Options{
				Host: hosttest.New(t, map[string]hosttest.Registrar{"folders": plugin}), Provider: "folders", LargeFile: 12 << 20, // a few pages
			})
			if n := report.Count(conformance.Checked); n < 50 {
				t.Errorf("%d checks were made", n)
			}
		})
	}
}

// paged are files in small pages.
func paged(t *testing.T, s *service, dir string) *shellfs.FS {
	t.Helper()
	const least = 256 << 10
	if s.limit == 0 {
		s.limit = least
	}
	files, err := shellfs.NewPaged(t.Context(), shellfs.PagedConfig{Exec: s.exec, WorkingDir: dir, MaxArgBytes: least, MaxOutputBytes: s.limit})
	if err != nil {
		t.Fatal(err)
	}
	s.calls.Store(0)
	return files
}

func TestPaged_ManyPages(t *testing.T) {
	all := shells(t)
	for name, shell := range maps.Clone(all) {
		all[name+" without base64"] = withoutBase64(t, shell)
	}
	for name, shell := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := paged(t, &service{local: shell}, dir)
			for _, size := range []int{0, 1, 3 << 10, 300<<10 + 7} {
				data := make([]byte, size)
				_, _ = rand.Read(data)
				write(t, files, "f", data)
				onDisk, err := os.ReadFile(filepath.Join(dir, "f"))
				if err != nil || !bytes.Equal(onDisk, data) {
					t.Fatalf("%d bytes written: %d on the disk, %v", size, len(onDisk), err)
				}
				for _, o := range []workspace.ReadOptions{{}, {Offset: 5}, {Length: 250_000}, {Offset: 150_000, Length: 120_000}} {
					want := data[min(int(o.Offset), size):]
					if o.Length > 0 {
						want = want[:min(int(o.Length), len(want))]
					}
					if got := read(t, files, "f", o); !bytes.Equal(got, want) {
						t.Errorf("%d bytes, %+v: got %d, want %d", size, o, len(got), len(want))
					}
				}
			}
			if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func write(t testing.TB, files *shellfs.FS, path string, data []byte) {
	t.Helper()
	w, err := files.Create(t.Context(), path, workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, files *shellfs.FS, path string, o workspace.ReadOptions) []byte {
	t.Helper()
	r, err := files.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPaged_LargeFilesAreGathered: where there is a faster way, a large file takes it, and
// leaves nothing of it behind, nor where it does not work.
func TestPaged_LargeFilesAreGathered(t *testing.T) {
	const least, put, pages = 256 << 10, 1 << 20, 4
	errPut := errors.New("a fault of it")
	for name, shell := range shells(t) {
		for how, test := range map[string]struct {
			fails     func(n int) error
			put, most int // how many files, and calls
			want      error
		}{
			"all of it":    {func(int) error { return nil }, pages, pages + 1, nil},
			"nothing":      {func(int) error { return errors.ErrUnsupported }, 0, 100, nil},
			"the first":    {func(n int) error { return []error{nil, errors.ErrUnsupported}[min(n, 1)] }, 1, 100, nil},
			"with a fault": {func(n int) error { return []error{nil, errPut}[min(n, 1)] }, 2, 100, errPut},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				dir := t.TempDir()
				s := &service{local: shell, limit: least}
				puts := 0
				files, err := shellfs.NewPaged(t.Context(), shellfs.PagedConfig{
					Exec: s.exec, WorkingDir: dir, MaxArgBytes: least, MaxOutputBytes: least, PutBytes: put,
					Put: func(_ context.Context, path string, data []byte) error {
						err := test.fails(puts)
						if errors.Is(err, errors.ErrUnsupported) {
							return err
						}
						puts++
						return errors.Join(err, os.WriteFile(path, data, 0o600)) // a fault may come after it
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				s.calls.Store(0)
				want := make([]byte, put*(pages-1)+put/2)
				_, _ = rand.Read(want)
				w, err := files.Create(t.Context(), "sub/f", workspace.WriteOptions{Mode: 0o640})
				if err != nil {
					t.Fatal(err)
				}
				_, err = w.Write(want)
				if err == nil {
					err = w.Close()
				} else if aborted := w.Abort(); aborted != nil {
					t.Error(aborted)
				}
				if !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
				got, err := os.ReadFile(filepath.Join(dir, "sub/f"))
				if test.want == nil && (err != nil || !bytes.Equal(got, want)) || test.want != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("it holds %d bytes, %v", len(got), err)
				}
				if calls := int(s.calls.Load()); puts != test.put || calls > test.most {
					t.Errorf("%d files were put, and %d calls made", puts, calls)
				}
				for _, at := range []string{".", "sub"} {
					entries, err := os.ReadDir(filepath.Join(dir, at))
					if err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Fatal(err)
					}
					for _, e := range entries {
						if e.Name() != "sub" && e.Name() != "f" {
							t.Errorf("%s is left", filepath.Join(at, e.Name()))
						}
					}
				}
			})
		}
	}
}

func TestPaged_RoundTrips(t *testing.T) {
	s := &service{local: shells(t)["system"], limit: workspace.DefaultOutputLimit}
	files, err := shellfs.NewPaged(t.Context(), shellfs.PagedConfig{Exec: s.exec, WorkingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what string
		do   func()
		want int64
	}{
		{"a small write", func() { write(t, files, "a/b/f", []byte("hello")) }, 1},
		{"a small read", func() { read(t, files, "a/b/f", workspace.ReadOptions{}) }, 1},
		{"a stat", func() { _, _ = files.Stat(t.Context(), "a") }, 1},
		{"a listing", func() { _, _ = files.ReadDir(t.Context(), "a") }, 1},
		{"a write of 8 MiB", func() { write(t, files, "big", make([]byte, 8<<20)) }, 14},
		{"a read of 8 MiB", func() { read(t, files, "big", workspace.ReadOptions{}) }, 2},
	} {
		s.calls.Store(0)
		if step.do(); s.calls.Load() > step.want {
			t.Errorf("%s took %d commands, want %d at most", step.what, s.calls.Load(), step.want)
		}
	}
}

func TestPaged_ListingOfManyPages(t *testing.T) {
	dir := t.TempDir()
	const n = 6000
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d-%s", i, strings.Repeat("x", 60))), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "a\xff\nb"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	temporary := t.TempDir()
	s := &service{local: shells(t)["system"]}
	s.shell = withVariable(t, s.shell, "TMPDIR="+temporary)
	infos, err := paged(t, s, dir).ReadDir(t.Context(), ".")
	if err != nil || len(infos) != n+1 || infos[n].Name != "a\xff\nb" {
		t.Errorf("%d entries, %v", len(infos), err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// withVariable is a shell with a variable.
func withVariable(t *testing.T, shell, variable string) string {
	t.Helper()
	wrapped := filepath.Join(t.TempDir(), "sh")
	if err := os.WriteFile(wrapped, []byte("#!/bin/sh\nexport "+variable+"\nexec "+shell+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return wrapped
}

func TestPaged_AFileThatChangesBetweenPages(t *testing.T) {
	dir := t.TempDir()
	s := &service{local: shells(t)["system"]}
	files := paged(t, s, dir)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte("a"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := files.Open(t.Context(), "f", workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.WriteFile(path, bytes.Repeat([]byte("b"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if !errors.Is(err, workspace.ErrTransient) || bytes.ContainsRune(data, 'b') {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestPaged_AWriteThatFailsLeavesNothing(t *testing.T) {
	lost := errors.New("the answer was lost")
	data := make([]byte, 1<<20)
	for name, test := range map[string]struct {
		fails string // the operation before which the connection breaks, or after
		after bool
	}{
		"the first page is not heard": {"op_begin", false},
		"its answer is lost":          {"op_begin", true},
		"a later one is not heard":    {"op_more", false},
		"the last one is not heard":   {"op_finish", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := &service{local: shells(t)["system"]}
			s.before = func(argv []string) error {
				if argv[5] != "r"+test.fails {
					return nil
				}
				if test.after {
					other := &service{local: s.local, limit: s.limit}
					if _, status, stderr, err := other.exec(t.Context(), argv); status != 0 || err != nil {
						t.Errorf("status %d, %s, %v", status, stderr, err)
					}
				}
				return lost
			}
			w, err := paged(t, s, dir).Create(t.Context(), "f", workspace.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.Write(data)
			if err == nil {
				err = w.Close()
			} else {
				_ = w.Abort()
			}
			if !errors.Is(err, lost) {
				t.Errorf("error: %v", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestPaged_AWriteThatIsGivenUpLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	files := paged(t, &service{local: shells(t)["system"]}, dir)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := files.Create(ctx, "f", workspace.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPaged_ErrorsSayWhatTheyAre(t *testing.T) {
	dir := t.TempDir()
	files := paged(t, &service{local: shells(t)["system"]}, dir)
	if err := files.MkdirAll(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{10, 1 << 20} {
		w, err := files.Create(t.Context(), "d", workspace.WriteOptions{})
		if err == nil {
			if _, err = w.Write(make([]byte, size)); err == nil {
				err = w.Close()
			}
			_ = w.Abort()
		}
		var path *fs.PathError
		if !errors.Is(err, syscall.EISDIR) || !errors.As(err, &path) || path.Path != "d" {
			t.Errorf("%d bytes over a directory: %v", size, err)
		}
	}
	if _, err := files.Stat(t.Context(), "none\xff"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
}

func TestPaged_AnswersThatNoScriptGives(t *testing.T) {
	for name, out := range map[string]string{"nothing": "", "no kind": "aGVsbG8=", "no base64": "b!!!", "no octal": "o 999", "no header": "b" + "aGVsbG8="} {
		t.Run(name, func(t *testing.T) {
			good := &service{local: shells(t)["system"]}
			var evil atomic.Bool
			files, err := shellfs.NewPaged(t.Context(), shellfs.PagedConfig{WorkingDir: "/tmp", Exec: func(ctx context.Context, argv []string) ([]byte, int, []byte, error) {
				if evil.Load() {
					return []byte(out), 0, nil, nil
				}
				good.limit = workspace.DefaultOutputLimit
				return good.exec(ctx, argv)
			}})
			if err != nil {
				t.Fatal(err)
			}
			evil.Store(true)
			if r, err := files.Open(t.Context(), "f", workspace.ReadOptions{}); err == nil {
				t.Errorf("opened: %+v", r.Info())
			}
			if info, err := files.Stat(t.Context(), "f"); err == nil {
				t.Errorf("there: %+v", info)
			}
		})
	}
}
