package shellfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// Config says where the files are.
type Config struct {
	// Runner runs scripts in the workspace.
	Runner Runner
	// WorkingDir is absolute and canonical; relative paths begin there.
	WorkingDir string
}

// FS are the files of a workspace. All methods may be called concurrently, as far
// as its runner's may.
type FS struct {
	runner      Runner
	dir         string
	xargs       bool
	nanoseconds bool
}

var _ interface {
	sdk.Filesystem
	sdk.RealPather
	sdk.Renamer
	sdk.Linker
	sdk.Chmoder
	sdk.Chtimer
} = (*FS)(nil)

// New asks the workspace what it has. One that lacks a tool without which files
// cannot be exact is [errors.ErrUnsupported].
func New(ctx context.Context, config Config) (*FS, error) { return probed(ctx, config, false) }

func probed(ctx context.Context, config Config, paged bool) (*FS, error) {
	f := &FS{runner: config.Runner, dir: config.WorkingDir}
	out, err := f.output(ctx, "op_probe", flag(paged))
	if err != nil {
		return nil, fmt.Errorf("asking for the workspace's file tools: %w", err)
	}
	var lacks []string
	for line := range strings.Lines(string(out)) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "xargs":
			f.xargs = true
		case line == "nanoseconds":
			f.nanoseconds = true
		case strings.HasPrefix(line, "lacks "):
			lacks = append(lacks, strings.TrimPrefix(line, "lacks "))
		}
	}
	if len(lacks) > 0 {
		return nil, fmt.Errorf("the workspace lacks %s: %w", strings.Join(lacks, ", "), errors.ErrUnsupported)
	}
	return f, nil
}

// Announce tells the features that no method shows.
func (f *FS) Announce() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureExclusive, workspace.FeatureAppend}
}

// Withhold tells the features whose methods only say [errors.ErrUnsupported] in this
// workspace.
func (f *FS) Withhold() []workspace.Feature {
	if f.nanoseconds {
		return nil
	}
	return []workspace.Feature{workspace.FeatureChtimes}
}

// path is absolute; .. and links in it are the workspace's to resolve.
func (f *FS) path(path string) string {
	switch {
	case strings.HasPrefix(path, "/"):
		return path
	case f.dir == "/":
		return "/" + path
	}
	return f.dir + "/" + path
}

// output runs an operation to its end and returns what it said.
func (f *FS) output(ctx context.Context, args ...string) ([]byte, error) {
	p, err := f.runner.Run(ctx, args)
	if err != nil {
		return nil, err
	}
	out, err := readAnswer(p, maxAnswer)
	if err == nil {
		err = wait(p)
	}
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	return out, err
}

const (
	// maxAnswer is what an operation may say: the listing of half a million names.
	// Whoever has replaced the workspace's shell decides what comes, and how much.
	maxAnswer = 64 << 20
	// maxHeader is for what is said of a file before its content: a line, and the
	// target of a link.
	maxHeader = 16 << 10
)

// errTooLong is of a directory of very many entries, or of an answer that no script
// of ours gives.
var errTooLong = errors.New("the workspace's shell says more than is read of one answer: is /bin/sh still its own?")

// readAnswer reads all that there is, up to a limit.
func readAnswer(from io.Reader, limit int64) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(out)) > limit {
		return nil, errTooLong
	}
	return out, err
}

// wait tells how a script ended whose output was read to its end.
func wait(p Process) error {
	status, stderr, err := p.Wait()
	if err == nil && status != 0 {
		err = failure(status, stderr)
	}
	return err
}

// do runs an operation on a path.
func (f *FS) do(ctx context.Context, op, path string, args ...string) ([]byte, error) {
	if err := workspace.ValidatePath(op, path); err != nil {
		return nil, err
	}
	out, err := f.output(ctx, args...)
	return out, pathError(op, path, err)
}

// pathError is err about a path; what is about the workspace stays as it is.
func pathError(op, path string, err error) error {
	if err == nil || errors.Is(err, workspace.ErrUnavailable) {
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// trim takes the slashes off a path's end and reports whether there were any.
func trim(path string) (string, bool) {
	trimmed := strings.TrimRight(path, "/")
	if trimmed == "" {
		return "/", false
	}
	return trimmed, trimmed != path
}

// flag is a shell's true or false.
func flag(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// Stat follows links; a dangling one is [fs.ErrNotExist] (contract F4).
func (f *FS) Stat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return f.stat(ctx, "stat", path)
}

// Lstat does not follow the last element.
func (f *FS) Lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return f.stat(ctx, "lstat", path)
}

func (f *FS) stat(ctx context.Context, op, path string) (workspace.FileInfo, error) {
	out, err := f.do(ctx, op, path, "op_"+op, f.path(path))
	if err != nil {
		return workspace.FileInfo{}, err
	}
	about, target, _ := bytes.Cut(out, []byte("\n"))
	info, err := parseInfo(baseName(f.path(path)), string(about), string(target))
	return info, pathError(op, path, err)
}

// MkdirAll makes a directory and its parents (contract F5).
func (f *FS) MkdirAll(ctx context.Context, path string) error {
	_, err := f.do(ctx, "mkdir", path, "op_mkdir", f.path(path))
	return err
}

// Remove takes a file, a link itself, or a tree. The working directory and its
// ancestors are [workspace.ErrInvalid] (contract F6).
func (f *FS) Remove(ctx context.Context, path string) error {
	trimmed, slash := trim(f.path(path))
	_, err := f.do(ctx, "remove", path, "op_remove", trimmed, flag(slash), f.dir)
	return err
}

// RealPath resolves like realpath -m (contract F7).
func (f *FS) RealPath(ctx context.Context, path string) (string, error) {
	out, err := f.do(ctx, "realpath", path, "op_realpath", f.path(path))
	return string(out), err
}

// Rename renames as [os.Rename] does; the error is an [*os.LinkError].
func (f *FS) Rename(ctx context.Context, from, to string) error {
	if err := workspace.ValidatePath("rename", to); err != nil {
		return err
	}
	_, err := f.do(ctx, "rename", from, "op_rename", f.path(from), f.path(to), f.dir)
	return linkError("rename", from, to, err)
}

// Symlink makes path a link that holds target; the error is an [*os.LinkError].
func (f *FS) Symlink(ctx context.Context, target, path string) error {
	if strings.IndexByte(target, 0) >= 0 {
		return linkError("symlink", target, path, fmt.Errorf("the target holds a NUL byte: %w", workspace.ErrInvalid))
	}
	_, err := f.do(ctx, "symlink", path, "op_symlink", target, f.path(path))
	return linkError("symlink", target, path, err)
}

// Readlink returns what a link holds.
func (f *FS) Readlink(ctx context.Context, path string) (string, error) {
	out, err := f.do(ctx, "readlink", path, "op_readlink", f.path(path))
	return string(out), err
}

func linkError(op, from, to string, err error) error {
	if err == nil || errors.Is(err, workspace.ErrUnavailable) {
		return err
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return &os.LinkError{Op: op, Old: from, New: to, Err: err}
}

// Chmod changes permissions, links followed.
func (f *FS) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	_, err := f.do(ctx, "chmod", path, "op_chmod", octal(mode), f.path(path))
	return err
}

// ReadDir lists a directory, sorted byte by byte; links tell what they lead to
// (contract F4).
func (f *FS) ReadDir(ctx context.Context, path string) ([]workspace.FileInfo, error) {
	slow := !f.xargs
	for {
		out, err := f.do(ctx, "readdir", path, "op_readdir", f.path(path), flag(slow))
		if err != nil {
			return nil, err
		}
		infos, err := parseListing(out, slow)
		if errors.Is(err, errChanged) && !slow {
			slow = true
			continue
		}
		if err != nil {
			return nil, pathError("readdir", path, err)
		}
		slices.SortFunc(infos, func(a, b workspace.FileInfo) int { return strings.Compare(a.Name, b.Name) })
		return infos, nil
	}
}
