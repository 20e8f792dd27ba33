package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/berth-dev/berth/shared/workspace"
)

// pieceSize is how much of a file is held at a time. One that is no longer is read
// before its answer begins, and taken before its file is: whatever is wrong with it
// is told in time.
const pieceSize = 128 << 10

// readNative answers with a whole file.
func (g *Gateway) readNative(ctx context.Context, id, path string) (_ *streamed, err error) {
	use, err := g.sessions.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	o := g.observe(id, "read", path)
	ctx, cancel := use.Context(ctx)
	release := func() {
		cancel()
		use.Release()
	}
	var file *wholeFile
	if err = checkPath(path); err == nil {
		file, err = openWhole(ctx, use.Workspace, path, g.sessions.Policy().MaxReadBytes)
		err = nativeError("read", use.Check(context.WithoutCancel(ctx), err))
	}
	if err != nil {
		o.failed(err)
		release()
		return nil, err
	}
	return &streamed{func(hctx huma.Context) {
		defer release()
		_, w := (&rawRequest{hctx}).unwrap()
		w.Header().Set("Content-Type", bytesType)
		w.Header().Set("Content-Length", strconv.FormatInt(file.size, 10))
		w.WriteHeader(http.StatusOK)
		err := file.sendTo(w)
		o.failed(err)
		if err != nil {
			panic(http.ErrAbortHandler) // what was sent is not the whole
		}
	}}, nil
}

// wholeFile is a file of a known size, of which the first bytes have been read.
type wholeFile struct {
	size  int64
	first []byte
	rest  workspace.FileReader // nil if those are all
}

// openWhole opens a file of up to most bytes.
func openWhole(ctx context.Context, files workspace.Stored, path string, most int64) (_ *wholeFile, err error) {
	r, err := files.Open(ctx, path, workspace.ReadOptions{Length: most + 1})
	if err != nil {
		return nil, err
	}
	size := r.Info().Size
	if size <= pieceSize || size > most {
		defer r.Close()
		data, err := readOpened(r, path, most)
		return &wholeFile{size: int64(len(data)), first: data}, err
	}
	first := make([]byte, pieceSize)
	n, err := io.ReadAtLeast(r, first, 1)
	if err != nil && !errors.Is(err, io.EOF) { // one that was cut off meanwhile is told by its length
		return nil, errors.Join(err, r.Close())
	}
	return &wholeFile{size, first[:n], r}, nil
}

// sendTo writes all of it: as many bytes as it had when it was opened.
func (f *wholeFile) sendTo(w io.Writer) (err error) {
	to := &exactly{w, f.size}
	_, err = to.Write(f.first)
	if f.rest == nil {
		return err
	}
	defer f.rest.Close()
	if err == nil {
		_, err = io.Copy(to, f.rest)
	}
	switch {
	case errors.Is(err, errEnough):
		return nil // it has grown
	case err == nil && to.left > 0:
		return errChanged
	}
	return err
}

// exactly takes so many bytes, and no more.
type exactly struct {
	to   io.Writer
	left int64
}

var errEnough = errors.New("there is more than is wanted")

func (e *exactly) Write(p []byte) (int, error) {
	n, err := e.to.Write(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == nil && n < len(p) {
		err = errEnough
	}
	return n, err
}

// readFile reads a whole file of up to most bytes.
func readFile(ctx context.Context, files workspace.Stored, path string, most int64) ([]byte, error) {
	r, err := files.Open(ctx, path, workspace.ReadOptions{Length: most + 1})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readOpened(r, path, most)
}

// readOpened is readFile of one that is open.
func readOpened(r workspace.FileReader, path string, most int64) ([]byte, error) {
	size := r.Info().Size
	if size > most {
		return nil, errTooLarge(path, size, most)
	}
	data := make([]byte, 0, size+1) // one more, to meet the end without growing
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > most: // it grows
			return nil, errTooLarge(path, int64(len(data)), most)
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

func errTooLarge(path string, size, most int64) error {
	return errNative(path, fmt.Sprintf("has %d bytes, and at most %d are read in one call", size, most))
}

// writeNative writes a body of up to most bytes to a file.
func writeNative(ctx context.Context, ws workspace.Workspace, path string, r *http.Request, most int64) error {
	tooLarge := errText(http.StatusConflict, fmt.Sprintf("at most %d bytes are written in one call", most))
	if r.ContentLength > most {
		return tooLarge
	}
	body := &ceiling{r.Body, most, tooLarge}
	first := make([]byte, pieceSize)
	if 0 <= r.ContentLength && r.ContentLength < pieceSize {
		first = first[:r.ContentLength+1] // one more, to meet the end
	}
	n, err := fill(body, first)
	switch {
	case errors.Is(err, io.EOF):
		return ws.WriteFile(ctx, path, first[:n])
	case err != nil:
		return errBody(err)
	}
	return writeStream(ctx, ws, path, workspace.WriteOptions{}, io.MultiReader(bytes.NewReader(first), body))
}

// ceiling is a body that has no more than so many bytes, or the error over.
type ceiling struct {
	body io.Reader
	left int64
	over error
}

func (c *ceiling) Read(p []byte) (int, error) {
	n, err := c.body.Read(p[:min(int64(len(p)), c.left+1)])
	if c.left -= int64(n); c.left < 0 {
		c.left = 0
		return 0, c.over
	}
	return n, err
}

// writeStream writes a body to a file as it comes. Nothing of one that breaks off is
// to be seen.
func writeStream(ctx context.Context, ws workspace.Workspace, path string, options workspace.WriteOptions, body io.Reader) error {
	w, err := ws.Create(ctx, path, options)
	if err != nil {
		return err
	}
	buf := make([]byte, pieceSize)
	for {
		n, bodyErr := fill(body, buf)
		if n > 0 {
			_, err = w.Write(buf[:n])
		}
		switch {
		case err != nil:
		case errors.Is(bodyErr, io.EOF):
			return w.Close()
		case bodyErr != nil:
			err = errBody(bodyErr)
		default:
			continue
		}
		return errors.Join(err, w.Abort())
	}
}

// fill reads until buf is full, or to the body's end or what else ends it.
func fill(body io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var got int
		got, err = body.Read(buf[n:])
		n += got
	}
	return n, err
}
