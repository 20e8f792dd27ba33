package execpath

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// archive is the files of a container without a shell, by the engine's archive
// calls: it sends files and whole directories as tar archives, and unpacks those that
// it gets. What that costs: a directory is listed by reading past all that is below
// it, and a file at an offset by reading past what is before. What it cannot do is in
// [Deviations].
type archive struct {
	w        *Workspace
	uid, gid int // whose new files are
	mounts   mounts
}

func newArchive(ctx context.Context, w *Workspace) (*archive, error) {
	state, err := w.inspect(ctx)
	if err != nil {
		return nil, err
	}
	return &archive{w: w, uid: w.config.UID, gid: w.config.GID, mounts: mountsOf(state)}, nil
}

// Announce tells that no more is there than methods show.
func (a *archive) Announce() []workspace.Feature { return nil }

// Withhold tells what archive calls cannot do.
func (a *archive) Withhold() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureRename, workspace.FeatureSymlink, workspace.FeatureChmod, workspace.FeatureChtimes}
}

// errWithoutShell says what there would have to be for more.
var errWithoutShell = fmt.Errorf("the container has neither a guest nor a /bin/sh, so that files can be read, written, listed and removed and no more: "+
	"let the guest run in it, which needs a root or a tmpfs that it can be put into, or take an image with a shell: %w", errors.ErrUnsupported)

func unsupported(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: errWithoutShell}
}

// Rename is not possible.
func (a *archive) Rename(_ context.Context, from, _ string) error { return unsupported("rename", from) }

// Symlink is not possible without the risk of replacing what another has just made.
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
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		err = number
	case errdefs.IsNotFound(err):
		err = fs.ErrNotExist
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// faults are the ends of what the engine says of a path.
var faults = map[string]syscall.Errno{
	"not a directory":                      syscall.ENOTDIR,
	"is a directory":                       syscall.EISDIR,
	"too many levels of symbolic links":    syscall.ELOOP,
	"too many links":                       syscall.ELOOP,
	"file name too long":                   syscall.ENAMETOOLONG,
	"read-only file system":                syscall.EROFS,
	"container rootfs is marked read-only": syscall.EROFS,
	"mounted volume is marked read-only":   syscall.EROFS,
	"no space left on device":              syscall.ENOSPC,
	"disk quota exceeded":                  syscall.EDQUOT,
	"device or resource busy":              syscall.EBUSY,
	"operation not permitted":              syscall.EPERM,
	"permission denied":                    syscall.EACCES,
}

// fault adds to an error of the engine what it says of a path.
func fault(err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(err.Error())
	for end, number := range faults {
		if strings.HasSuffix(text, end) {
			return fmt.Errorf("%w (%w)", err, number)
		}
	}
	return err
}

// head is what one element of a path is. All before it must be without links.
func (a *archive) head(ctx context.Context, abs string) (stat container.PathStat, err error) {
	err = a.w.config.Engine.Query(ctx, "looking at a file in container "+a.w.config.ContainerID, func(ctx context.Context, c *client.Client) error {
		stat, err = c.ContainerStatPath(ctx, a.w.config.ContainerID, abs)
		return err
	})
	if err != nil && !errdefs.IsNotFound(err) && abs != "/" {
		return a.reason(ctx, abs, err)
	}
	return stat, err
}

// longestName is what file systems on Linux take, in bytes.
const longestName = 255

// reason finds out what the engine does not say: its answer to this call has no
// body. It fails as well where a link leads round in a circle, or through a file.
func (a *archive) reason(ctx context.Context, abs string, err error) (stat container.PathStat, reason error) {
	dir, base := path.Split(abs)
	if len(base) > longestName {
		return stat, syscall.ENAMETOOLONG
	}
	parent, parentErr := a.head(ctx, path.Clean(dir))
	if parentErr == nil && !parent.Mode.IsDir() || errors.Is(parentErr, syscall.ENOTDIR) {
		return stat, syscall.ENOTDIR
	}
	if !errdefs.IsInternal(err) {
		return stat, err
	}
	d, header, findErr := a.find(ctx, path.Clean(dir), base)
	if findErr != nil {
		return stat, err
	}
	return container.PathStat{Size: header.Size, Mode: header.FileInfo().Mode(), Mtime: header.ModTime}, d.Close()
}

// silence is how long the engine may send nothing of an archive, or take nothing: it
// waits for a disk.
const silence = 2 * time.Minute

var errSilent = fmt.Errorf("the engine has been silent for %v: %w", silence, workspace.ErrTransient)

// download is an archive that the engine sends. It ends with the context that it was
// asked for with.
type download struct {
	*tar.Reader
	a     *archive
	ctx   context.Context // the caller's
	limit context.Context // the same, which ends also with a silence
	end   context.CancelCauseFunc
	timer *time.Timer
	body  io.ReadCloser
	top   string // what the names in it of what is in a directory begin with
}

func (a *archive) download(ctx context.Context, abs string) (*download, error) {
	limit, end := context.WithCancelCause(ctx)
	d := &download{a: a, ctx: ctx, limit: limit, end: end, timer: time.AfterFunc(silence, func() { end(errSilent) })}
	body, _, err := a.w.config.Engine.Client().CopyFromContainer(limit, a.w.config.ContainerID, abs)
	d.timer.Stop()
	if err != nil {
		err = d.explain(fault(err))
		end(nil)
		return nil, err
	}
	d.body = body
	d.Reader = tar.NewReader(readFunc(d.receive))
	return d, nil
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func (d *download) receive(p []byte) (int, error) {
	d.timer.Reset(silence)
	n, err := d.body.Read(p)
	d.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = d.explain(err)
	}
	return n, err
}

func (d *download) explain(err error) error {
	if d.ctx.Err() == nil && d.limit.Err() != nil {
		err = context.Cause(d.limit)
	}
	return d.a.w.config.Engine.Error(d.ctx, "reading files of container "+d.a.w.config.ContainerID, err)
}

// Close ends it, wherever it is.
func (d *download) Close() error {
	d.timer.Stop()
	d.end(nil)
	return d.body.Close()
}

// child is the next entry of the directory itself, with its name there. What is below
// those is passed by.
func (d *download) child() (name string, header *tar.Header, err error) {
	for {
		if header, err = d.Next(); err != nil {
			return "", nil, err
		}
		name = strings.TrimSuffix(strings.TrimPrefix(header.Name, d.top), "/")
		if name != "" && !strings.Contains(name, "/") {
			return name, header, nil
		}
	}
}

// directory begins the archive of a directory.
func (a *archive) directory(ctx context.Context, dir string) (*download, error) {
	d, err := a.download(ctx, dir)
	if err != nil {
		return nil, err
	}
	header, err := d.Next()
	if err == nil && header.Typeflag != tar.TypeDir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, errors.Join(vanished(err), d.Close())
	}
	d.top = strings.TrimSuffix(header.Name, "/") + "/" // Podman writes it without
	return d, nil
}

// vanished is the end of an archive before what was asked for.
func vanished(err error) error {
	if errors.Is(err, io.EOF) {
		return fs.ErrNotExist
	}
	return err
}

// file begins the archive of a file, or whatever is no directory, at its content.
func (a *archive) file(ctx context.Context, abs string) (*download, *tar.Header, error) {
	dir, base := path.Split(abs)
	if !utf8.ValidString(base) {
		return a.find(ctx, path.Clean(dir), base)
	}
	d, err := a.download(ctx, abs)
	if errdefs.IsInternal(err) { // see reason
		return a.find(ctx, path.Clean(dir), base)
	}
	if err != nil {
		return nil, nil, err
	}
	header, err := d.Next()
	if err != nil {
		return nil, nil, errors.Join(vanished(err), d.Close())
	}
	return d, header, nil
}

// find does it through the archive of the directory. Engines hand the name of a file
// to a helper of theirs in JSON, which keeps only UTF-8: they would find nothing, or
// another file.
func (a *archive) find(ctx context.Context, dir, base string) (*download, *tar.Header, error) {
	d, err := a.directory(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	for {
		name, header, err := d.child()
		switch {
		case err != nil:
			return nil, nil, errors.Join(vanished(err), d.Close())
		case name != base:
		case header.Typeflag != tar.TypeLink:
			return d, header, nil
		default:
			// The content stands under the first name of the file that came by, which in
			// the archive of its own directory is the first one too.
			first := strings.TrimPrefix(header.Linkname, d.top)
			if err := d.Close(); err != nil {
				return nil, nil, err
			}
			return a.file(ctx, strings.TrimSuffix(dir, "/")+"/"+first)
		}
	}
}
