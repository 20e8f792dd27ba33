package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/shared/workspace"
)

// Options tell how a copy goes on. All may be nil.
type Options struct {
	// Begin is told the size of all files together before the first is written.
	Begin func(bytes int64)
	// Progress is told of bytes as they are copied.
	Progress func(bytes int)
}

// IncompleteError is a copy of all that can be copied, and of nothing else.
type IncompleteError struct {
	// Left are the things that were left out, and why, for people.
	Left []string
}

func (e *IncompleteError) Error() string {
	const most = 10
	left, more := e.Left, ""
	if len(left) > most {
		left, more = left[:most], fmt.Sprintf(" and %d more", len(e.Left)-most)
	}
	return "copied all but " + strings.Join(left, ", ") + more + ": only files, folders and links can be copied"
}

// Copy copies from to to, as cp -r would: into to if it is a folder, under its
// own name, unless the source ends in /. and means its contents; over it if it
// is a file; else as it, and missing parents are made.
func Copy(ctx context.Context, from, to Endpoint, opts Options) error {
	src, srcPath, top, err := openSource(ctx, from)
	if err != nil {
		return err
	}
	defer src.close()
	plan, err := scan(ctx, src, srcPath, top, to.Side)
	if err != nil {
		return err
	}
	dst, dstPath, err := openTarget(ctx, to, sourceName(from), top.IsDir() && !top.Link)
	if err != nil {
		return err
	}
	defer dst.close()
	if opts.Begin != nil {
		opts.Begin(plan.bytes)
	}
	if err := plan.copy(ctx, src, srcPath, dst, dstPath, opts.Progress); err != nil {
		return err
	}
	if len(plan.left) > 0 {
		return &IncompleteError{Left: plan.left}
	}
	return nil
}

// sourceName is the name that a copy gets in a folder, empty where the source
// means a folder's contents.
func sourceName(from Endpoint) string {
	_, name := from.Side.split(from.Path)
	if meansContents(from.Path) || name == "." || name == ".." || len(name) == 1 && (name == "/" || name == `\`) {
		return ""
	}
	return name
}

func meansContents(path string) bool {
	return path == "." || strings.HasSuffix(path, "/.")
}

func openSource(ctx context.Context, from Endpoint) (src tree, path string, top workspace.FileInfo, err error) {
	// A slash at the end asks for what a link leads to, on every system.
	stat := from.Side.lstat
	if strings.HasSuffix(from.Path, "/") || meansContents(from.Path) {
		stat = from.Side.stat
	}
	if top, err = stat(ctx, from.Path); err != nil {
		return nil, "", top, err
	}
	folder, path := from.Path, "."
	if !top.IsDir() || top.Link {
		folder, path = from.Side.split(from.Path)
	}
	if src, err = from.Side.tree(ctx, folder, false); err != nil {
		return nil, "", top, err
	}
	if path != "." {
		if top, err = src.lstat(ctx, path); err != nil { // with its target
			src.close()
			return nil, "", top, err
		}
	} else {
		top.Link = false
	}
	return src, path, top, nil
}

// openTarget finds out what a copy of a source becomes.
func openTarget(ctx context.Context, to Endpoint, name string, isDir bool) (dst tree, path string, err error) {
	info, err := to.Side.stat(ctx, to.Path)
	switch {
	case err == nil && info.IsDir():
		path = name
		if name == "" {
			path = "."
		}
		dst, err = to.Side.tree(ctx, to.Path, false)
		return dst, path, err
	case err == nil && isDir:
		return nil, "", fmt.Errorf("%s is a file: a folder cannot replace it", to.Side.describe(to.Path))
	case err == nil && strings.HasSuffix(to.Path, "/"):
		return nil, "", fmt.Errorf("%s is a file, not a folder", to.Side.describe(to.Path))
	case err == nil:
		// A link that the caller named is meant to be followed.
		if to.Path, err = to.Side.real(ctx, to.Path); err != nil {
			return nil, "", err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", err
	default:
		if info, err := to.Side.lstat(ctx, to.Path); err == nil && info.Link {
			return nil, "", fmt.Errorf("%s is a link that leads nowhere: remove it, or name another place", to.Side.describe(to.Path))
		}
		if strings.HasSuffix(to.Path, "/") && !isDir {
			dst, err = to.Side.tree(ctx, to.Path, true)
			return dst, name, err
		}
	}
	folder, path := to.Side.split(to.Path)
	dst, err = to.Side.tree(ctx, folder, true)
	return dst, path, err
}

// plan is all that is to be copied, folders before what is in them.
type plan struct {
	items []item
	bytes int64
	left  []string
}

type item struct {
	path string // below the top, which is .
	info workspace.FileInfo
}

// scan walks the source without following a link.
func scan(ctx context.Context, src tree, from string, top workspace.FileInfo, to Side) (*plan, error) {
	p := &plan{}
	var add func(path string, info workspace.FileInfo) error
	add = func(path string, info workspace.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err // a large tree of this machine takes its time
		}
		switch {
		case info.Link:
		case info.IsDir():
			p.items = append(p.items, item{path, info})
			children, err := src.readDir(ctx, join(from, path))
			if err != nil {
				return err
			}
			seen := make(map[string]bool, len(children))
			for _, child := range children {
				err := checkName(child.Name)
				if err == nil {
					err = to.checkName(child.Name)
				}
				if err == nil && seen[child.Name] {
					// As a link and then as a folder it would lead elsewhere.
					err = fmt.Errorf("it lists an entry %q twice", child.Name)
				}
				seen[child.Name] = true
				if err != nil {
					return fmt.Errorf("%s: %w", src.describe(join(from, path)), err)
				}
				if err := add(join(path, child.Name), child); err != nil {
					return err
				}
			}
			return nil
		case info.Mode.IsRegular():
			p.bytes += info.Size
		default:
			p.left = append(p.left, fmt.Sprintf("%s (a %s)", display.Name(src.describe(join(from, path))), display.FileType(info.Mode)))
			return nil
		}
		p.items = append(p.items, item{path, info})
		return nil
	}
	return p, add(".", top)
}

func (p *plan) copy(ctx context.Context, src tree, from string, dst tree, to string, progress func(int)) error {
	// Entries of the folders that were there before. In one that the copy made
	// nothing is looked for.
	before := map[string]map[string]workspace.FileInfo{}
	// What was made with more permissions than it is to keep, until its contents
	// are there.
	var restrict []item
	for _, it := range p.items {
		if err := ctx.Err(); err != nil {
			return err
		}
		source, target := join(from, it.path), join(to, it.path)
		old, err := oldEntry(ctx, dst, before, it.path, target)
		if err != nil {
			return err
		}
		if err := checkReplace(dst, target, it.info, old); err != nil {
			return err
		}
		switch mode := it.info.Mode.Perm(); {
		case it.info.Link:
			err = dst.symlink(ctx, it.info.Target, target, old)
		case it.info.IsDir():
			if old == nil {
				err = dst.mkdir(ctx, target, mode|ownerAll)
			} else if before[target], err = entries(ctx, dst, target); err == nil && it.path != "." && old.Mode.Perm() != mode|ownerAll {
				err = dst.chmod(ctx, target, mode|ownerAll)
			}
			if mode&ownerAll != ownerAll && (old == nil || it.path != ".") {
				restrict = append(restrict, item{target, it.info})
			}
		default:
			err = copyFile(ctx, src, source, dst, target, it.info, old, progress)
		}
		if err != nil {
			return err
		}
	}
	for _, it := range slices.Backward(restrict) {
		if err := dst.chmod(ctx, it.path, it.info.Mode); err != nil {
			return err
		}
	}
	return nil
}

// ownerAll is what it takes to put something into a folder.
const ownerAll = 0o700

func oldEntry(ctx context.Context, dst tree, before map[string]map[string]workspace.FileInfo, itemPath, target string) (*workspace.FileInfo, error) {
	if itemPath == "." {
		info, err := dst.lstat(ctx, target)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return &info, err
	}
	if info, ok := before[path.Dir(target)][path.Base(target)]; ok {
		return &info, nil
	}
	return nil, nil
}

func entries(ctx context.Context, dst tree, folder string) (map[string]workspace.FileInfo, error) {
	infos, err := dst.readDir(ctx, folder)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]workspace.FileInfo, len(infos))
	for _, info := range infos {
		byName[info.Name] = info
	}
	return byName, nil
}

// checkReplace refuses to put one kind of thing in place of another.
func checkReplace(dst tree, target string, info workspace.FileInfo, old *workspace.FileInfo) error {
	if old == nil {
		return nil
	}
	wasDir, isDir := old.IsDir() && !old.Link, info.IsDir() && !info.Link
	switch {
	case isDir && old.Link:
		return fmt.Errorf("%s is a link there: a folder is not copied through it; remove it first", dst.describe(target))
	case isDir && !wasDir:
		return fmt.Errorf("%s is a file there: a folder cannot replace it", dst.describe(target))
	case !isDir && wasDir:
		return fmt.Errorf("%s is a folder there: a file or link cannot replace it", dst.describe(target))
	}
	return nil
}

func copyFile(ctx context.Context, src tree, source string, dst tree, target string, info workspace.FileInfo, old *workspace.FileInfo, progress func(int)) error {
	content, err := src.open(ctx, source)
	if err != nil {
		return err
	}
	reader := &contentReader{r: content, progress: progress}
	err = dst.write(ctx, target, info.Mode, old, reader)
	closeErr := content.Close()
	switch {
	case reader.err != nil:
		return fmt.Errorf("reading %s: %w", src.describe(source), reader.err)
	case err != nil:
		return err
	case closeErr != nil:
		return fmt.Errorf("reading %s: %w", src.describe(source), closeErr)
	}
	return nil
}

// contentReader tells a source's errors from a destination's.
type contentReader struct {
	r        io.Reader
	progress func(int)
	err      error
}

func (r *contentReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	if n > 0 && r.progress != nil {
		r.progress(n)
	}
	return n, err
}

// copyBuffer is what a wire's message carries well, and far from what memory
// would notice.
const copyBuffer = 256 << 10

func copyContent(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, copyBuffer))
}
