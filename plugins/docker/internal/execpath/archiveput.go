package execpath

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// What the engine unpacks takes the place of what was there: it removes that first,
// whole directories too if told so, and makes the new one after. So an entry that
// cannot be made, another name for what is not there, removes and makes nothing.

// publish puts a file in its place at once. Its content is unpacked under another
// name, which then becomes a name of the file's own, and is removed.
func (a *archive) publish(ctx context.Context, entry tar.Header, content io.ReadSeeker) error {
	dir := path.Dir(entry.Name)
	aside, nowhere := path.Join(dir, ".berth-"+newName()), path.Join(dir, newName())
	first := entry
	first.Name = aside
	err := a.put(ctx, container.CopyToContainerOptions{}, content, first, linkTo(entry, entry.Name, aside), linkTo(entry, aside, nowhere))
	if err != nil && !strings.Contains(err.Error(), path.Base(nowhere)) {
		// It did not come to the last entry.
		a.tidy(ctx, aside)
		if strings.Contains(err.Error(), ": link /") { // the file system has no such names
			err = a.put(ctx, container.CopyToContainerOptions{}, content, entry)
		}
		return err
	}
	return a.clear(ctx, aside)
}

// tidyTimeout is how long the removal of what a failed write has left may take, also
// when its caller has gone.
const tidyTimeout = 30 * time.Second

func (a *archive) tidy(ctx context.Context, aside string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	_ = a.clear(ctx, aside) // the write's own error is the one to tell
}

// Remove takes a file, a link itself, or a tree (contract F6).
func (a *archive) Remove(ctx context.Context, name string) error {
	return a.explain(ctx, "remove", name, a.remove(ctx, a.path(name)))
}

func (a *archive) remove(ctx context.Context, abs string) error {
	resolved, err := a.resolve(ctx, abs, strings.HasSuffix(abs, "/"))
	if err != nil {
		return err
	}
	_, err = a.head(ctx, resolved)
	switch {
	case errdefs.IsNotFound(err):
		return a.missing(ctx, resolved, err)
	case err != nil:
		return err
	case a.mounts.hidesBelow(resolved):
		return syscall.EBUSY // to the engine it would be an empty directory
	}
	return a.clear(ctx, resolved)
}

// clear removes what is there, if anything is.
func (a *archive) clear(ctx context.Context, abs string) error {
	_, err := a.head(ctx, abs)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	putErr := a.put(ctx, container.CopyToContainerOptions{AllowOverwriteDirWithFile: true}, nil, linkTo(tar.Header{}, abs, abs))
	if errdefs.IsNotFound(putErr) {
		return putErr // the directory is gone, or the container
	}
	_, err = a.head(ctx, abs)
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case putErr != nil:
		return putErr
	}
	return fmt.Errorf("the engine does not remove what it is told to replace: %w", errWithoutShell)
}

// linkTo is the entry of another name for a file.
func linkTo(entry tar.Header, name, target string) tar.Header {
	entry.Typeflag, entry.Name, entry.Linkname, entry.Size = tar.TypeLink, name, target, 0
	return entry
}

// put sends entries that are all in one directory, with those of its parents that are
// missing. Their names are absolute; the content is that of a regular file.
func (a *archive) put(ctx context.Context, opts container.CopyToContainerOptions, content io.ReadSeeker, entries ...tar.Header) error {
	base := path.Dir(entries[0].Name)
	var parents []tar.Header
	for ; base != "/"; base = path.Dir(base) {
		stat, err := a.head(ctx, base)
		if err == nil && !stat.Mode.IsDir() {
			return syscall.ENOTDIR // it has just been replaced
		}
		if err == nil {
			break
		}
		if !errdefs.IsNotFound(err) {
			return err
		}
		parents = append(parents, a.newDirectory(base))
	}
	slices.Reverse(parents)
	entries = append(parents, entries...)
	if content != nil {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	read, write := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = write.CloseWithError(pack(write, base, content, entries))
	}()
	err := a.w.config.Engine.Stream(ctx, silence, "writing files of container "+a.w.config.ContainerID, func(ctx context.Context, c *client.Client, alive func()) error {
		return fault(c.CopyToContainer(ctx, a.w.config.ContainerID, base, &noticed{read, alive}, opts))
	})
	_ = read.Close()
	<-sent
	return err
}

// noticed says of each read that the engine is there.
type noticed struct {
	from  io.Reader
	alive func()
}

func (n *noticed) Read(p []byte) (int, error) {
	n.alive()
	return n.from.Read(p)
}

// pack writes entries, with names that are relative to base.
func pack(to io.Writer, base string, content io.Reader, entries []tar.Header) error {
	relative := func(abs string) string { return strings.TrimPrefix(strings.TrimPrefix(abs, base), "/") }
	w := tar.NewWriter(to)
	now := time.Now()
	for _, entry := range entries {
		// The one format for names of any length and any bytes, and exact times.
		entry.Format, entry.ModTime = tar.FormatPAX, now
		entry.Name = relative(entry.Name)
		switch entry.Typeflag {
		case tar.TypeDir:
			entry.Name += "/"
		case tar.TypeLink:
			entry.Linkname = relative(entry.Linkname)
		}
		if err := w.WriteHeader(&entry); err != nil {
			return err
		}
		if entry.Typeflag == tar.TypeReg && entry.Size > 0 {
			if _, err := io.Copy(w, content); err != nil {
				return err
			}
		}
	}
	return w.Close()
}
