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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// archive is the files of a container without a shell, by the engine's archive
// calls. They act as root and do not see what lies in memory (a tmpfs), names must
// be UTF-8, nothing can be removed, and a directory is listed by reading all that is
// below it.
type archive struct {
	w        *Workspace
	uid, gid int // whose new files are, as far as a number was configured
}

// newArchive reads the numbers of a user, as in 1000:1000. A name is root's here:
// only a program in the container could look it up.
func newArchive(w *Workspace) *archive {
	a := &archive{w: w}
	user, group, _ := strings.Cut(w.config.User, ":")
	if uid, err := strconv.Atoi(user); err == nil {
		a.uid = uid
	}
	if gid, err := strconv.Atoi(group); err == nil {
		a.gid = gid
	}
	return a
}

// Announce tells that no more is there than methods show.
func (a *archive) Announce() []workspace.Feature { return nil }

// Withhold tells what archive calls cannot do.
func (a *archive) Withhold() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureRename, workspace.FeatureSymlink, workspace.FeatureChmod, workspace.FeatureChtimes}
}

func (a *archive) path(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(a.w.config.WorkingDir, "/") + "/" + name
}

// explain is an error of the engine about a path.
func (a *archive) explain(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	if gone := a.w.available(ctx); gone != nil {
		return gone
	}
	switch text := err.Error(); {
	case errdefs.IsNotFound(err):
		err = fs.ErrNotExist
	case strings.Contains(text, "not a directory"):
		err = syscall.ENOTDIR
	case strings.Contains(text, "too many levels of symbolic links"), strings.Contains(text, "too many links"):
		err = syscall.ELOOP
	case strings.Contains(text, "file name too long"):
		err = syscall.ENAMETOOLONG
	case strings.Contains(text, "read-only"):
		err = syscall.EROFS
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// head is what one element of a path is. All before it must be without links.
func (a *archive) head(ctx context.Context, abs string) (stat container.PathStat, err error) {
	err = a.w.config.Engine.Query(ctx, "looking at a file in container "+a.w.config.ContainerID, func(ctx context.Context, c *client.Client) error {
		stat, err = c.ContainerStatPath(ctx, a.w.config.ContainerID, abs)
		return err
	})
	if err != nil && !errdefs.IsNotFound(err) && abs != "/" {
		err = a.reason(ctx, abs, err)
	}
	return stat, err
}

// longestName is what file systems on Linux take, in bytes.
const longestName = 255

// reason finds out what the engine does not say: its answer to this call has no
// body.
func (a *archive) reason(ctx context.Context, abs string, err error) error {
	if len(path.Base(abs)) > longestName {
		return syscall.ENAMETOOLONG
	}
	parent, parentErr := a.head(ctx, path.Dir(abs))
	if parentErr == nil && !parent.Mode.IsDir() || errors.Is(parentErr, syscall.ENOTDIR) {
		return syscall.ENOTDIR
	}
	return err
}

// get begins an archive of a path.
func (a *archive) get(ctx context.Context, abs string) (io.ReadCloser, *tar.Reader, *tar.Header, error) {
	// The body outlives the call: the context is the caller's, not one call's.
	body, _, err := a.w.config.Engine.Client().CopyFromContainer(ctx, a.w.config.ContainerID, abs)
	if err != nil {
		return nil, nil, nil, a.w.config.Engine.Error(ctx, "reading a file of container "+a.w.config.ContainerID, err)
	}
	reader := tar.NewReader(body)
	header, err := reader.Next()
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("reading the engine's archive: %w", err), body.Close())
	}
	return body, reader, header, nil
}

// readlink is what a link holds: the engine's stat tells only where it leads.
func (a *archive) readlink(ctx context.Context, abs string) (string, error) {
	body, _, header, err := a.get(ctx, abs)
	if err != nil {
		return "", err
	}
	return header.Linkname, body.Close()
}

// maxLinks is after how many links a path is called a loop, as in Linux.
const maxLinks = 40

// resolve follows the links of a path, of its last element only if last, and keeps
// names that are missing.
func (a *archive) resolve(ctx context.Context, abs string, last bool) (string, error) {
	done, todo := "", strings.Split(abs, "/")
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = done[:max(strings.LastIndexByte(done, '/'), 0)]
			continue
		}
		next := done + "/" + name
		stat, err := a.head(ctx, next)
		switch {
		case errdefs.IsNotFound(err), errors.Is(err, syscall.ENOTDIR):
			done = next
			continue
		case err != nil:
			return "", err
		case stat.Mode&fs.ModeSymlink == 0, len(todo) == 0 && !last:
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		target, err := a.readlink(ctx, next)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			done = ""
		}
		todo = slices.Concat(strings.Split(target, "/"), todo)
	}
	if done == "" {
		return "/", nil
	}
	return done, nil
}

// RealPath resolves like realpath -m (contract F7).
func (a *archive) RealPath(ctx context.Context, name string) (string, error) {
	resolved, err := a.resolve(ctx, a.path(name), true)
	return resolved, a.explain(ctx, "realpath", name, err)
}

// Stat follows links.
func (a *archive) Stat(ctx context.Context, name string) (workspace.FileInfo, error) {
	info, err := a.Lstat(ctx, name)
	if err != nil || !info.Link {
		return info, err
	}
	resolved, err := a.resolve(ctx, a.path(name), true)
	if err == nil {
		var stat container.PathStat
		if stat, err = a.head(ctx, resolved); err == nil {
			info.Size, info.Mode, info.ModTime = sizeOf(stat), stat.Mode, stat.Mtime.Truncate(time.Second)
		}
	}
	return info, a.explain(ctx, "stat", name, err)
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
	info := workspace.FileInfo{Name: path.Base(a.path(name)), Size: sizeOf(stat), Mode: stat.Mode, ModTime: stat.Mtime.Truncate(time.Second)}
	if stat.Mode&fs.ModeSymlink != 0 {
		info.Link = true
		if info.Target, err = a.readlink(ctx, resolved); err != nil {
			return info, a.explain(ctx, op, name, err)
		}
		info.Size = int64(len(info.Target))
	}
	return info, nil
}

// sizeOf is the size that an archive tells too: none of a directory. Times are in
// seconds for the same reason.
func sizeOf(stat container.PathStat) int64 {
	if stat.Mode.IsDir() {
		return 0
	}
	return stat.Size
}

// missing tells a file above from nothing at all: the engine does not.
func (a *archive) missing(ctx context.Context, abs string, err error) error {
	for dir := path.Dir(abs); dir != "/"; dir = path.Dir(dir) {
		if stat, headErr := a.head(ctx, dir); headErr == nil {
			if !stat.Mode.IsDir() {
				return syscall.ENOTDIR
			}
			return err
		}
	}
	return err
}

// ReadDir lists a directory; links tell what they lead to (contract F4).
func (a *archive) ReadDir(ctx context.Context, name string) ([]workspace.FileInfo, error) {
	const op = "readdir"
	info, err := a.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	resolved, err := a.resolve(ctx, a.path(name), true)
	if err != nil {
		return nil, a.explain(ctx, op, name, err)
	}
	body, reader, top, err := a.get(ctx, resolved)
	if err != nil {
		return nil, a.explain(ctx, op, name, err)
	}
	defer body.Close()
	var infos []workspace.FileInfo
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, a.explain(ctx, op, name, fmt.Errorf("reading the engine's archive: %w", err))
		}
		entry := strings.TrimSuffix(strings.TrimPrefix(header.Name, top.Name), "/")
		if entry == "" || strings.Contains(entry, "/") {
			continue
		}
		info := workspace.FileInfo{Name: entry, Size: header.Size, Mode: header.FileInfo().Mode(), ModTime: header.ModTime}
		if header.Typeflag == tar.TypeSymlink {
			if led, err := a.Stat(ctx, resolved+"/"+entry); err == nil {
				info = led
			}
			info.Name, info.Link, info.Target = entry, true, header.Linkname
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b workspace.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
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
	body, reader, header, err := a.get(ctx, resolved)
	if err != nil {
		return nil, a.explain(ctx, op, name, err)
	}
	info.Size, info.ModTime = header.Size, header.ModTime
	_, err = io.CopyN(io.Discard, reader, min(opts.Offset, header.Size))
	if err != nil {
		return nil, a.explain(ctx, op, name, errors.Join(err, body.Close()))
	}
	var from io.Reader = reader
	if opts.Length > 0 {
		from = io.LimitReader(reader, opts.Length)
	}
	return &archiveReader{from, body, info}, nil
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

// unsupported is what archive calls cannot do.
func unsupported(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("the container has no shell: %w", errors.ErrUnsupported)}
}

// Remove is not possible: no archive call removes anything.
func (a *archive) Remove(ctx context.Context, name string) error {
	if _, err := a.Lstat(ctx, name); err != nil { // a missing file is that first
		return err
	}
	return unsupported("remove", name)
}

// Rename is not possible.
func (a *archive) Rename(_ context.Context, from, _ string) error { return unsupported("rename", from) }

// Symlink is not possible.
func (a *archive) Symlink(_ context.Context, _, name string) error {
	return unsupported("symlink", name)
}

// Readlink is not possible without the other: a feature is both.
func (a *archive) Readlink(_ context.Context, name string) (string, error) {
	return "", unsupported("readlink", name)
}

// Chmod is not possible.
func (a *archive) Chmod(_ context.Context, name string, _ fs.FileMode) error {
	return unsupported("chmod", name)
}

// Chtimes is not possible.
func (a *archive) Chtimes(_ context.Context, name string, _ time.Time) error {
	return unsupported("chtimes", name)
}
