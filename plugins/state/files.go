package state

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

// linkMode is what every system shows as the mode of a link.
const linkMode = fs.ModePerm

// Stat follows links, and tells of a link that it is one.
func (d *document) Stat(ctx context.Context, path string) (info workspace.FileInfo, err error) {
	err = d.view(ctx, "stat", path, func(t tx, root node) error {
		entry, err := stat(t, root, path, keepLast)
		if err != nil {
			return err
		}
		target := entry
		if entry.kind == kindLink {
			if target, err = stat(t, root, path, followLast); err != nil {
				return err
			}
		}
		info = fileInfo(baseName(path), entry, target)
		return nil
	})
	return info, err
}

// Lstat tells what the entry itself is.
func (d *document) Lstat(ctx context.Context, path string) (info workspace.FileInfo, err error) {
	err = d.view(ctx, "lstat", path, func(t tx, root node) error {
		entry, err := stat(t, root, path, keepLast)
		info = fileInfo(baseName(path), entry, entry)
		return err
	})
	return info, err
}

func stat(t tx, root node, path string, last onLink) (node, error) {
	w := walker{tx: t, root: root, last: last}
	p, err := w.walk(path)
	if err == nil && !p.found {
		err = syscall.ENOENT
	}
	return p.node, err
}

// fileInfo describes an entry by what it leads to.
func fileInfo(name string, entry, target node) workspace.FileInfo {
	info := workspace.FileInfo{
		Name: name, Size: target.size, Mode: target.mode, ModTime: target.modTime,
		Link: entry.kind == kindLink, Target: entry.target,
	}
	switch target.kind {
	case kindDir:
		info.Mode |= fs.ModeDir
	case kindLink:
		info.Mode |= fs.ModeSymlink
		info.Size = int64(len(target.target))
	case kindFile:
	}
	return info
}

// listChunk is how many entries are read between two looks at the context.
const listChunk = 4096

// ReadDir lists a directory, by name, byte by byte.
func (d *document) ReadDir(ctx context.Context, path string) (list []workspace.FileInfo, err error) {
	err = d.view(ctx, "readdir", path, func(t tx, root node) error {
		w := walker{tx: t, root: root}
		p, err := w.walk(path)
		switch {
		case err != nil:
			return err
		case !p.found:
			return syscall.ENOENT
		case p.node.kind != kindDir:
			return syscall.ENOTDIR
		}
		steps := p.steps // of the directory itself, where its links start
		if p.name != "" {
			steps = append(slices.Clip(steps), step{p.name, p.node})
		}
		for after := ""; ; {
			if err := ctx.Err(); err != nil {
				return err
			}
			entries, err := t.children(p.node.id, after, listChunk)
			if err != nil {
				return err
			}
			list = slices.Grow(list, len(entries))
			for _, entry := range entries {
				target, err := followed(t, root, entry, steps)
				if err != nil {
					return err
				}
				list = append(list, fileInfo(entry.name, entry, target))
			}
			if len(entries) < listChunk {
				return nil
			}
			after = entries[len(entries)-1].name
		}
	})
	return list, err
}

// followed returns what an entry leads to; a link that leads nowhere, itself.
func followed(t tx, root, entry node, steps []step) (node, error) {
	if entry.kind != kindLink {
		return entry, nil
	}
	w := walker{tx: t, root: root, links: 1}
	p, err := w.walk(entry.target, steps...)
	if err == nil && p.found {
		return p.node, nil
	}
	for _, nowhere := range []error{nil, syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if errors.Is(err, nowhere) {
			return entry, nil
		}
	}
	return node{}, err
}

// RealPath resolves like realpath -m (contract F7).
func (d *document) RealPath(ctx context.Context, path string) (resolved string, err error) {
	err = d.view(ctx, "realpath", path, func(t tx, root node) error {
		w := walker{tx: t, root: root, miss: keepMissing}
		p, err := w.walk(path)
		if err == nil {
			resolved = realPath(p.steps)
		}
		return err
	})
	return resolved, err
}

// Readlink returns what a link holds.
func (d *document) Readlink(ctx context.Context, path string) (target string, err error) {
	err = d.view(ctx, "readlink", path, func(t tx, root node) error {
		entry, err := stat(t, root, path, keepLast)
		if err == nil && entry.kind != kindLink {
			err = syscall.EINVAL
		}
		target = entry.target
		return err
	})
	return target, err
}
