package sdk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

// absolute joins a caller's path with the working directory. It does not clean:
// what .. means depends on the links before it.
func absolute(workingDir, path string) string {
	switch {
	case strings.HasPrefix(path, "/"):
		return path
	case workingDir == "/":
		return "/" + path
	}
	return workingDir + "/" + path
}

// path is a caller's path for the workspace: absolute, unless a guest has the
// working directory itself.
func (e *entry) path(path string) string {
	if e.target != nil {
		return path
	}
	return absolute(e.workingDir, path)
}

// isCanonical reports whether a working directory is written as RealPath would.
func isCanonical(dir string) bool {
	if dir == "/" {
		return true
	}
	if !strings.HasPrefix(dir, "/") || strings.IndexByte(dir, 0) >= 0 {
		return false
	}
	for name := range strings.SplitSeq(dir[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return true
}

// pathError is err as an error of op on the path that the caller gave (contract
// F3), whatever path the provider's own tells.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: withoutPath(err)}
}

// linkError is the same for two paths, as in os.
func linkError(op, from, to string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: from, New: to, Err: withoutPath(err)}
}

// withoutPath takes a provider's own path off an error that is nothing but that.
// One that wraps it deeper keeps its text.
func withoutPath(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // only what err itself is
		case *fs.PathError:
			if e.Err == nil {
				return err
			}
			err = e.Err
		case *os.LinkError:
			if e.Err == nil {
				return err
			}
			err = e.Err
		default:
			return err
		}
	}
}

// unsupported is a feature that is not there.
func unsupported(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errors.ErrUnsupported)...)
}

// maxLinks is how many links a resolution follows before it is called a loop, as
// on Linux.
const maxLinks = 40

// realPath resolves an absolute path as realpath -m does, for workspaces that do
// not do it themselves.
func realPath(ctx context.Context, files fileOps, path string) (string, error) {
	pending := strings.Split(path, "/")
	done := "" // resolved so far; empty is the root
	links := 0
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = done[:max(strings.LastIndexByte(done, '/'), 0)]
			continue
		}
		next := done + "/" + name
		info, err := files.Lstat(ctx, next)
		switch {
		case err == nil && info.Link:
			if links++; links > maxLinks {
				return "", syscall.ELOOP
			}
			target := info.Target
			if target == "" {
				if target, err = readlink(ctx, files, next); err != nil {
					return "", err
				}
			}
			if strings.HasPrefix(target, "/") {
				done = ""
			}
			pending = append(strings.Split(target, "/"), pending...)
			continue
		case err == nil, isMissing(err):
			done = next
		default:
			return "", err
		}
	}
	if done == "" {
		return "/", nil
	}
	return done, nil
}

func readlink(ctx context.Context, files fileOps, path string) (string, error) {
	linker, ok := files.(Linker)
	if !ok {
		return "", fmt.Errorf("link %q without a target", path)
	}
	return linker.Readlink(ctx, path)
}

// isMissing reports whether a name is kept as it is: nothing is there, or
// nothing that we may see, or it could not be there at all.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

// resolve is the workspace's own RealPath, or ours.
func resolve(ctx context.Context, files fileOps, abs string) (string, error) {
	if own, ok := files.(RealPather); ok {
		return own.RealPath(ctx, abs)
	}
	return realPath(ctx, files, abs)
}

// checkRemovable refuses the working directory and what it lies in (contract
// F6), by whatever path it is reached.
func (e *entry) checkRemovable(ctx context.Context, files fileOps, abs string) error {
	parent, last := abs[:strings.LastIndexByte(abs, '/')+1], abs[strings.LastIndexByte(abs, '/')+1:]
	var target string
	var err error
	switch last {
	case "", ".", "..":
		// What the path leads to is removed, not a link at its end.
		target, err = resolve(ctx, files, abs)
	default:
		if target, err = resolve(ctx, files, parent); err == nil {
			target = absolute(target, last)
		}
	}
	if err != nil {
		return err
	}
	if target == e.workingDir || target == "/" || strings.HasPrefix(e.workingDir, target+"/") {
		return fmt.Errorf("it is the working directory, or that lies in it: %w", workspace.ErrInvalid)
	}
	return nil
}
