package posix

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// listStride is after how many entries a listing looks whether its caller is
// still there.
const listStride = 1024

// Stat follows links; a dangling one is [fs.ErrNotExist] (contract F4).
func (w *Workspace) Stat(ctx context.Context, path string) (info workspace.FileInfo, err error) {
	err = w.do(ctx, "stat", path, func(abs string) error {
		led, err := os.Stat(abs)
		if err == nil {
			info = fileInfo(path, led)
			readLink(abs, &info)
		}
		return err
	})
	return info, err
}

// Lstat does not follow the last element.
func (w *Workspace) Lstat(ctx context.Context, path string) (info workspace.FileInfo, err error) {
	err = w.do(ctx, "lstat", path, func(abs string) error {
		own, err := os.Lstat(abs)
		if err == nil {
			info = fileInfo(path, own)
			if own.Mode()&fs.ModeSymlink != 0 {
				readLink(abs, &info)
			}
		}
		return err
	})
	return info, err
}

// ReadDir lists a directory, sorted byte by byte; links tell what they lead to
// (contract F4).
func (w *Workspace) ReadDir(ctx context.Context, path string) (infos []workspace.FileInfo, err error) {
	err = w.do(ctx, "readdir", path, func(abs string) error {
		dir, err := openDir(abs)
		if err != nil {
			return err
		}
		defer dir.Close()
		entries, err := dir.ReadDir(-1)
		if err != nil {
			return err
		}
		infos = make([]workspace.FileInfo, 0, len(entries))
		for i, entry := range entries {
			if i%listStride == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if info, ok := listed(abs, entry); ok {
				infos = append(infos, info)
			}
		}
		slices.SortFunc(infos, func(a, b workspace.FileInfo) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// listed describes one entry. One that went away meanwhile is left out; one
// that cannot be looked at is there nevertheless.
func listed(dir string, entry fs.DirEntry) (workspace.FileInfo, bool) {
	own, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return workspace.FileInfo{}, false
	}
	if err != nil {
		return workspace.FileInfo{Name: entry.Name(), Mode: entry.Type(), Link: entry.Type()&fs.ModeSymlink != 0}, true
	}
	if own.Mode()&fs.ModeSymlink == 0 {
		return fileInfo(entry.Name(), own), true
	}
	abs := dir + "/" + entry.Name()
	info := fileInfo(entry.Name(), own)
	if led, err := os.Stat(abs); err == nil {
		info = fileInfo(entry.Name(), led)
	}
	readLink(abs, &info)
	return info, true
}

// fileInfo describes a file under the last element of path.
func fileInfo(path string, info fs.FileInfo) workspace.FileInfo {
	return workspace.FileInfo{
		Name: filepath.Base(path), Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime(),
	}
}

// readLink adds what the entry itself holds, if it is a link.
func readLink(abs string, info *workspace.FileInfo) {
	if target, err := os.Readlink(abs); err == nil {
		info.Link, info.Target = true, target
	}
}

// MkdirAll makes a directory and its parents with mode 0755, and is idempotent;
// over a file it is [fs.ErrExist], below one ENOTDIR (contract F5).
func (w *Workspace) MkdirAll(ctx context.Context, path string) error {
	return w.do(ctx, "mkdir", path, mkdirAll)
}

func mkdirAll(abs string) error {
	trimmed := trimSlashes(abs)
	err := mkdir(trimmed)
	if errors.Is(err, fs.ErrNotExist) {
		parent := trimSlashes(trimmed[:strings.LastIndexByte(trimmed, '/')+1])
		if parent == trimmed {
			return err
		}
		if err := mkdirAll(parent); err != nil {
			return err
		}
		err = mkdir(trimmed)
	}
	if errors.Is(err, fs.ErrExist) {
		if info, statErr := os.Stat(trimmed); statErr == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// mkdir makes one directory, of mode 0755 whatever the umask.
func mkdir(abs string) error {
	if err := os.Mkdir(abs, workspace.DefaultDirMode); err != nil {
		return err
	}
	info, err := os.Lstat(abs)
	if err != nil || info.Mode().Perm() == workspace.DefaultDirMode {
		return err
	}
	// The set-group-ID bit that it may have from its parent stays.
	return os.Chmod(abs, info.Mode()&^fs.ModePerm|workspace.DefaultDirMode)
}

func trimSlashes(path string) string {
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		return trimmed
	}
	return "/"
}

// Remove takes a file, a link itself, or a tree. The working directory and its
// ancestors are [workspace.ErrInvalid] (contract F6).
func (w *Workspace) Remove(ctx context.Context, path string) error {
	return w.do(ctx, "remove", path, func(abs string) error {
		trimmed := trimSlashes(abs)
		info, err := os.Lstat(trimmed)
		if err != nil {
			return err
		}
		if trimmed != abs && !info.IsDir() {
			return syscall.ENOTDIR
		}
		if w.holdsRoot(info) {
			return fmt.Errorf("is the working directory or holds it: %w", workspace.ErrInvalid)
		}
		if base := filepath.Base(trimmed); info.IsDir() && (base == "." || base == "..") {
			// package os refuses these: the tree is removed under its own name.
			if trimmed, err = filepath.EvalSymlinks(trimmed); err != nil {
				return err
			}
		}
		return os.RemoveAll(trimmed)
	})
}

// holdsRoot reports whether a file is the working directory or an ancestor,
// under whatever name it was reached.
func (w *Workspace) holdsRoot(info fs.FileInfo) bool {
	if !info.IsDir() {
		return false
	}
	for dir := w.dir; ; dir = filepath.Dir(dir) {
		if own, err := os.Stat(dir); err == nil && os.SameFile(own, info) {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// Rename renames as [os.Rename] does; the error is an [*os.LinkError]. The
// working directory and its ancestors are [workspace.ErrInvalid].
func (w *Workspace) Rename(ctx context.Context, from, to string) error {
	if err := workspace.ValidatePath("rename", to); err != nil {
		return err
	}
	return w.do(ctx, "rename", from, func(abs string) error {
		if info, err := os.Lstat(abs); err == nil && w.holdsRoot(info) {
			return fmt.Errorf("is the working directory or holds it: %w", workspace.ErrInvalid)
		}
		if err := os.Rename(abs, w.path(to)); err != nil {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: cause(err)}
		}
		return nil
	})
}

// Symlink makes path a link that holds target, as it is given; the error is an
// [*os.LinkError].
func (w *Workspace) Symlink(ctx context.Context, target, path string) error {
	if strings.IndexByte(target, 0) >= 0 {
		return &os.LinkError{Op: "symlink", Old: target, New: path, Err: fmt.Errorf("the target holds a NUL byte: %w", workspace.ErrInvalid)}
	}
	return w.do(ctx, "symlink", path, func(abs string) error {
		if err := os.Symlink(target, abs); err != nil {
			return &os.LinkError{Op: "symlink", Old: target, New: path, Err: cause(err)}
		}
		return nil
	})
}

// Readlink returns what a link holds.
func (w *Workspace) Readlink(ctx context.Context, path string) (target string, err error) {
	err = w.do(ctx, "readlink", path, func(abs string) error {
		target, err = os.Readlink(abs)
		return err
	})
	return target, err
}

// RealPath resolves like realpath -m: links followed, missing names kept, a loop
// is ELOOP (contract F7).
func (w *Workspace) RealPath(ctx context.Context, path string) (resolved string, err error) {
	err = w.do(ctx, "realpath", path, func(abs string) error {
		resolved, err = realPath(abs)
		return err
	})
	return resolved, err
}

// Chmod changes permissions as [os.Chmod] does.
func (w *Workspace) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return w.do(ctx, "chmod", path, func(abs string) error { return os.Chmod(abs, mode) })
}

// Chtimes changes the modification time, links followed.
func (w *Workspace) Chtimes(ctx context.Context, path string, modTime time.Time) error {
	return w.do(ctx, "chtimes", path, func(abs string) error { return os.Chtimes(abs, time.Time{}, modTime) })
}
