package execpath

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/shared/workspace"
)

// Stat follows links.
func (a *archive) Stat(ctx context.Context, name string) (workspace.FileInfo, error) {
	info, err := a.Lstat(ctx, name)
	if err != nil || !info.Link {
		return info, err
	}
	return info, a.explain(ctx, "stat", name, a.follow(ctx, a.path(name), &info))
}

// follow tells what a link leads to.
func (a *archive) follow(ctx context.Context, abs string, info *workspace.FileInfo) error {
	resolved, err := a.resolve(ctx, abs, true)
	if err != nil {
		return err
	}
	stat, err := a.head(ctx, resolved)
	if err == nil {
		info.Size, info.Mode, info.ModTime = sizeOf(stat), stat.Mode, timeOf(stat)
	}
	return err
}

// Lstat does not follow the last element.
func (a *archive) Lstat(ctx context.Context, name string) (workspace.FileInfo, error) {
	const op = "lstat"
	resolved, err := a.resolve(ctx, a.path(name), strings.HasSuffix(name, "/"))
	if err != nil {
		return workspace.FileInfo{}, a.explain(ctx, op, name, err)
	}
	stat, err := a.head(ctx, resolved)
	if errdefs.IsNotFound(err) {
		err = a.missing(ctx, resolved, err)
	}
	if err != nil {
		return workspace.FileInfo{}, a.explain(ctx, op, name, err)
	}
	info, err := a.info(ctx, resolved, stat)
	info.Name = path.Base(a.path(name))
	return info, a.explain(ctx, op, name, err)
}

// info is what a name itself is. The engine's own word for it keeps only UTF-8.
func (a *archive) info(ctx context.Context, abs string, stat container.PathStat) (info workspace.FileInfo, err error) {
	info = workspace.FileInfo{Name: path.Base(abs), Size: sizeOf(stat), Mode: stat.Mode, ModTime: timeOf(stat)}
	if stat.Mode&fs.ModeSymlink != 0 {
		info.Link = true
		info.Target, err = a.readlink(ctx, abs)
		info.Size = int64(len(info.Target))
	}
	return info, err
}

// sizeOf is the size that an archive tells too: none of a directory.
func sizeOf(stat container.PathStat) int64 {
	if stat.Mode.IsDir() {
		return 0
	}
	return stat.Size
}

// timeOf is the time that an archive tells too, in seconds.
func timeOf(stat container.PathStat) time.Time { return stat.Mtime.Truncate(time.Second) }

// ReadDir lists a directory; links tell what they lead to (contract F4).
func (a *archive) ReadDir(ctx context.Context, name string) ([]workspace.FileInfo, error) {
	infos, err := a.list(ctx, a.path(name))
	return infos, a.explain(ctx, "readdir", name, err)
}

func (a *archive) list(ctx context.Context, abs string) ([]workspace.FileInfo, error) {
	dir, err := a.resolve(ctx, abs, true)
	if err != nil {
		return nil, err
	}
	stat, err := a.head(ctx, dir)
	switch {
	case errdefs.IsNotFound(err):
		return nil, a.missing(ctx, dir, err)
	case err != nil:
		return nil, err
	case !stat.Mode.IsDir():
		return nil, syscall.ENOTDIR
	case a.mounts.hides(dir):
		return nil, errHidden
	}
	d, err := a.directory(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var infos []workspace.FileInfo
	for {
		entry, header, err := d.child()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		info, err := a.listed(ctx, strings.TrimSuffix(dir, "/")+"/"+entry, header)
		if errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
			continue // it has just been removed
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b workspace.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

// listed is an entry of a listing.
func (a *archive) listed(ctx context.Context, abs string, header *tar.Header) (info workspace.FileInfo, err error) {
	switch header.Typeflag {
	case tar.TypeLink: // another name of a file that came by: nothing else is told of it
		stat, err := a.head(ctx, abs)
		if err != nil {
			return info, err
		}
		if info, err = a.info(ctx, abs, stat); err != nil {
			return info, err
		}
	default:
		info = workspace.FileInfo{Name: path.Base(abs), Size: header.Size, Mode: header.FileInfo().Mode(), ModTime: header.ModTime}
		if header.Typeflag == tar.TypeSymlink {
			info.Link, info.Target, info.Size = true, header.Linkname, int64(len(header.Linkname))
		}
	}
	if info.Link {
		if err := a.follow(ctx, abs, &info); err != nil && ctx.Err() != nil {
			return info, err
		} // and if it leads nowhere it is listed as a link
	}
	return info, nil
}

// archiveReader is a file in an archive.
type archiveReader struct {
	io.Reader
	body io.Closer
	info workspace.FileInfo
}

// Info is the file as it was when opened.
func (r *archiveReader) Info() workspace.FileInfo { return r.info }

// Close ends the reading.
func (r *archiveReader) Close() error { return r.body.Close() }

// Open reads a regular file.
func (a *archive) Open(ctx context.Context, name string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	const op = "open"
	if opts.Offset < 0 || opts.Length < 0 {
		return nil, &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("offset %d or length %d is negative: %w", opts.Offset, opts.Length, workspace.ErrInvalid)}
	}
	info, err := a.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := regular(info.Mode); err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	resolved, err := a.resolve(ctx, a.path(name), true)
	if err != nil {
		return nil, a.explain(ctx, op, name, err)
	}
	d, header, err := a.file(ctx, resolved)
	if err != nil {
		return nil, a.explain(ctx, op, name, err)
	}
	err = regular(header.FileInfo().Mode()) // it may have been replaced
	if err == nil {
		_, err = io.CopyN(io.Discard, d, min(opts.Offset, header.Size))
	}
	if err != nil {
		return nil, a.explain(ctx, op, name, errors.Join(err, d.Close()))
	}
	info.Size, info.Mode, info.ModTime = header.Size, header.FileInfo().Mode(), header.ModTime
	var from io.Reader = d
	if opts.Length > 0 {
		from = io.LimitReader(d, opts.Length)
	}
	return &archiveReader{from, d, info}, nil
}

func regular(mode fs.FileMode) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return syscall.EISDIR
	}
	return fmt.Errorf("is of type %v, not a regular file: %w", mode.Type(), workspace.ErrInvalid)
}
