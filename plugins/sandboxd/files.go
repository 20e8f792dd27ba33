package sandboxd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/berth-dev/berth/shared/workspace"
)

// Files are derived from commands (see package shellfs), which is exact and takes a
// round trip of a command each. Where the service can do as much by itself, on its own
// disk, it is asked instead, which takes a fiftieth of that: it replaces files, makes
// and removes them, resolves paths, and reads whole ones. Its own stat and list know
// neither modes, times nor links, so what a file is stays the commands' to say.

// errNotNative is what the service does not do by itself: then commands do it.
var errNotNative = errors.New("not natively")

const (
	// maxName and maxPath are Linux': the service fails on longer ones.
	maxName = 255
	maxPath = 4095
	// nativeMost is how long a file is at most that goes through the service as a whole,
	// whatever it offers: here it is in memory.
	nativeMost = 8 << 20
)

// plain reports whether the service takes a path as it is meant. It drops a slash at
// its end, and JSON holds no bytes that are not UTF-8.
func plain(name string) bool {
	if !utf8.ValidString(name) || !path.IsAbs(name) || path.Clean(name) != name || len(name) > maxPath {
		return false
	}
	for element := range strings.SplitSeq(name, "/") {
		if len(element) > maxName {
			return false
		}
	}
	return true
}

// native asks the service for one operation on a file, or says errNotNative.
func (s *session) native(ctx context.Context, op, name string, offered func(policy) bool, data []byte) (answer, error) {
	if !plain(name) {
		return answer{}, errNotNative
	}
	r := request{doing: op, method: http.MethodPost, path: s.path("files", op), most: nativeMost}
	if data != nil {
		r.query, r.raw, r.body = url.Values{"path": {name}}, true, data
	} else {
		body, err := marshal(pathRequest{Path: name})
		if err != nil {
			return answer{}, err
		}
		r.body = body
	}
	var a answer
	err := s.call(ctx, func(held *access) (err error) {
		if !offered(held.policy) {
			return errNotNative
		}
		r.token = held.token
		a, err = s.client.do(ctx, r)
		return err
	})
	// It fails with 500 for what it does not know, such as a full disk.
	if isStatus(err, http.StatusConflict) || isStatus(err, http.StatusInternalServerError) {
		return a, errNotNative
	}
	var failed *statusError
	if errors.As(err, &failed) {
		if known := fileErrors[failed.class]; known != nil && !errors.Is(known, workspace.ErrInvalid) {
			return a, known // all that is to be said, as commands say it
		}
	}
	return a, err
}

// change asks for an operation that tells nothing but that it is done.
func (s *session) change(ctx context.Context, op, name string, data []byte) error {
	a, err := s.native(ctx, op, name, offersWrites, data)
	if err == nil {
		err = a.nothing()
		if err != nil {
			err = s.client.nonsense(op, err)
		}
	}
	return err
}

// put writes a part of a large file, which commands put together.
func (s *session) put(ctx context.Context, name string, data []byte) error {
	err := s.change(ctx, "write", name, data)
	if errors.Is(err, errNotNative) {
		return fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return err
}

func offersReads(p policy) bool    { return p.NativeFiles }
func offersWrites(p policy) bool   { return p.NativeWrites }
func offersRealpath(p policy) bool { return p.NativeFiles && p.NativeRealpath }

// MkdirAll makes a directory and its parents.
func (s *session) MkdirAll(ctx context.Context, name string) error {
	err := s.change(ctx, "mkdir", name, nil)
	if errors.Is(err, errNotNative) {
		return s.FS.MkdirAll(ctx, name)
	}
	return err
}

// Remove takes a file, a link itself, or a tree.
func (s *session) Remove(ctx context.Context, name string) error {
	err := s.change(ctx, "remove", name, nil)
	if errors.Is(err, errNotNative) {
		return s.FS.Remove(ctx, name)
	}
	return err
}

// RealPath resolves like realpath -m.
func (s *session) RealPath(ctx context.Context, name string) (string, error) {
	a, err := s.native(ctx, "realpath", name, offersRealpath, nil)
	if errors.Is(err, errNotNative) {
		return s.FS.RealPath(ctx, name)
	}
	if err != nil {
		return "", err
	}
	var resolved pathRequest
	if err := a.decode(&resolved); err != nil || !path.IsAbs(resolved.Path) {
		return "", s.client.nonsense("resolving a path", fmt.Errorf("path %q: %w", short(resolved.Path), err))
	}
	return resolved.Path, nil
}

// Open reads a file. A whole one comes from the service while a command opens it, and so
// tells what it is and that the session's own user may read it; if the two do not agree,
// it is read by commands alone.
func (s *session) Open(ctx context.Context, name string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	if opts != (workspace.ReadOptions{}) || !plain(name) || !offersReads(s.access.Load().policy) {
		return s.FS.Open(ctx, name, opts)
	}
	type content struct {
		answer
		err error
	}
	read := make(chan content, 1)
	go func() { // ends with ctx at the latest, and is waited for below
		a, err := s.native(ctx, "read", name, offersReads, nil)
		read <- content{a, err}
	}()
	opened, err := s.FS.Open(ctx, name, workspace.ReadOptions{Length: 1})
	got := <-read
	if err != nil {
		return nil, err
	}
	info := opened.Info()
	if err := opened.Close(); err != nil {
		return nil, err
	}
	if got.err == nil && got.kind == "application/octet-stream" && info.Mode.IsRegular() && info.Size == int64(len(got.body)) {
		return &wholeFile{Reader: bytes.NewReader(got.body), info: info}, nil
	}
	return s.FS.Open(ctx, name, opts)
}

// wholeFile is a file that was read already.
type wholeFile struct {
	*bytes.Reader
	info workspace.FileInfo
}

// Info is the file as it was when opened.
func (f *wholeFile) Info() workspace.FileInfo { return f.info }

// Close has nothing to do.
func (f *wholeFile) Close() error { return nil }

// Create writes a file. One that is short enough, and wants nothing special, is the
// service's to replace.
func (s *session) Create(ctx context.Context, name string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	if opts.Mode == 0 {
		opts.Mode = workspace.DefaultFileMode
	}
	held := s.access.Load().policy
	if opts != (workspace.WriteOptions{Mode: workspace.DefaultFileMode}) || !plain(name) || !offersWrites(held) {
		return s.FS.Create(ctx, name, opts)
	}
	return &writer{session: s, ctx: ctx, name: name, opts: opts, most: min(held.MaxReadBytes, nativeMost)}, nil
}

// writer collects a file for the service, and goes over to commands when it gets too
// long for that.
type writer struct {
	session *session
	ctx     context.Context //nolint:containedctx // it lasts until the writer is closed
	name    string
	opts    workspace.WriteOptions
	most    int64
	data    []byte
	derived workspace.FileWriter
	over    bool
}

func (w *writer) Write(p []byte) (int, error) {
	switch {
	case w.over:
		return 0, fs.ErrClosed
	case w.derived == nil && int64(len(w.data)+len(p)) <= w.most:
		w.data = append(w.data, p...)
		return len(p), nil
	case w.derived == nil:
		if err := w.derive(); err != nil {
			return 0, err
		}
	}
	return w.derived.Write(p)
}

// derive gives what was collected to commands.
func (w *writer) derive() error {
	derived, err := w.session.FS.Create(w.ctx, w.name, w.opts)
	if err != nil {
		return err
	}
	w.derived = derived
	_, err = derived.Write(w.data)
	w.data = nil
	return err
}

// Close publishes what was written.
func (w *writer) Close() error {
	if w.over {
		return nil
	}
	w.over = true
	if w.derived == nil {
		if w.data == nil {
			w.data = []byte{}
		}
		err := w.session.change(w.ctx, "write", w.name, w.data)
		if !errors.Is(err, errNotNative) {
			return err
		}
		if err := w.derive(); err != nil {
			return errors.Join(err, w.abort())
		}
	}
	return w.derived.Close()
}

// Abort leaves the file as it was.
func (w *writer) Abort() error {
	if w.over {
		return nil
	}
	w.over = true
	return w.abort()
}

func (w *writer) abort() error {
	w.data = nil
	if w.derived == nil {
		return nil
	}
	return w.derived.Abort()
}
