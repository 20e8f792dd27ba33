package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/berth-dev/berth/shared/workspace"
)

// chosenPath is the path of a request that may give it in two ways.
func chosenPath(plainPath, encoded string) (string, error) {
	switch {
	case plainPath == "" && encoded == "":
		return "", errInvalid("missing", "Field required", nil, "query", "path")
	case plainPath != "" && encoded != "":
		return "", errInvalid("value_error", "want path or path_b64, not both", nil, "query", "path_b64")
	case encoded == "":
		return plainPath, nil
	}
	decodedPath, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(decodedPath) == 0 {
		return "", errInvalid("value_error", "want base64url without padding", nil, "query", "path_b64")
	}
	return string(decodedPath), nil
}

var contentFailures = failures{text: workspaceFailures, file: []int{http.StatusBadRequest, http.StatusNotFound}}

func registerContent(g *Gateway) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		registerDownload(g, method)
	}
	registerUpload(g)
}

func registerDownload(g *Gateway, method string) {
	op := huma.Operation{
		OperationID: "get-content", Method: method, Path: "/sessions/{session_id}/files/content", Tags: []string{tagFiles},
		Summary:     "Download a file",
		Description: "Of any size, whole or in ranges, with the conditions that HTTP has. Relative paths begin at the working directory.",
		Responses:   make(map[string]*huma.Response),
	}
	content := map[string]*huma.MediaType{bytesType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	ranges := map[string]*huma.MediaType{bytesType: content[bytesType], "multipart/byteranges": content[bytesType]}
	if method == http.MethodHead {
		op.OperationID, op.Summary, content, ranges = "head-content", "Tell what a download would be", nil, nil
	}
	op.Responses["200"] = &huma.Response{Description: "The file", Content: content}
	op.Responses["206"] = &huma.Response{Description: "The ranges that were asked for", Content: ranges}
	op.Responses["304"] = &huma.Response{Description: "The client has it"}
	op.Responses["412"] = &huma.Response{Description: "A condition does not hold"}
	op.Responses["416"] = &huma.Response{Description: "The file has no such range", Content: map[string]*huma.MediaType{
		"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}},
	}}
	register(g, op, bySession, contentFailures, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		Path      string `query:"path" doc:"In the workspace; any byte but NUL, percent-encoded"`
		PathB64   string `query:"path_b64" doc:"The path in base64url, instead"`
		Range     string `header:"Range" doc:"The ranges that are wanted"`
	}) (*streamed, error) {
		path, err := chosenPath(in.Path, in.PathB64)
		if err != nil {
			return nil, err
		}
		use, err := g.sessions.Acquire(ctx, in.SessionID)
		if err != nil {
			return nil, err
		}
		name := "read"
		if method == http.MethodHead {
			name = "stat"
		}
		o := g.observe(in.SessionID, name, path)
		ctx, cancel := use.Context(ctx)
		release := func() {
			cancel()
			use.Release()
		}
		file := &contentFile{ctx: ctx, files: use.Workspace, path: path}
		// For what may end without a byte of it, or with a few from its middle, the
		// file is not opened at its beginning.
		if err := file.open(in.Range != "" || method == http.MethodHead); err != nil {
			err = use.Check(context.WithoutCancel(ctx), err)
			o.failed(err)
			release()
			return nil, err
		}
		return &streamed{func(hctx huma.Context) {
			defer release()
			defer file.close()
			r, w := (&rawRequest{hctx}).unwrap()
			w.Header().Set("Content-Type", bytesType)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			if tag := entityTag(file.info); tag != "" {
				w.Header().Set("ETag", tag)
			}
			http.ServeContent(w, r, "", file.info.ModTime, file)
			o.failed(file.err)
			if file.err != nil {
				panic(http.ErrAbortHandler) // what was sent is not the whole
			}
		}}, nil
	})
}

// settledAfter is when a file whose time is told in whole seconds alone can not get
// another content with the same time any more.
const settledAfter = 2 * time.Second

// entityTag tells one version of a file from another by its time and size. It is
// empty where the provider has no times, or none that would tell.
func entityTag(info workspace.FileInfo) string {
	coarse := info.ModTime.Nanosecond() == 0
	if info.ModTime.IsZero() || coarse && time.Since(info.ModTime) < settledAfter {
		return ""
	}
	return fmt.Sprintf(`"%x-%x"`, info.ModTime.UnixNano(), info.Size)
}

// contentFile is a file of a workspace that can seek: where it is read on elsewhere
// it is opened anew, and must be the same file still.
type contentFile struct {
	ctx   context.Context //nolint:containedctx // the request's: io.ReadSeeker has none
	files workspace.Stored
	path  string
	info  workspace.FileInfo

	reader   workspace.FileReader // nil while it is not open
	readerAt int64
	at       int64
	err      error // the first of a read
}

// errChanged is a file that is not the one any more that was asked for.
var errChanged = errors.New("the file has changed meanwhile")

// open finds the file, and opens it unless only its properties are wanted for now.
func (f *contentFile) open(lazily bool) (err error) {
	if lazily {
		f.info, err = f.files.Stat(f.ctx, f.path)
		switch {
		case err != nil:
			return err
		case f.info.IsDir():
			return &fs.PathError{Op: "open", Path: f.path, Err: syscall.EISDIR}
		case !f.info.Mode.IsRegular():
			return &fs.PathError{Op: "open", Path: f.path, Err: fmt.Errorf("is no regular file: %w", workspace.ErrInvalid)}
		}
		return nil
	}
	if f.reader, err = f.files.Open(f.ctx, f.path, workspace.ReadOptions{}); err != nil {
		return err
	}
	f.info = f.reader.Info()
	return nil
}

// Read reads on.
func (f *contentFile) Read(p []byte) (int, error) {
	n, err := f.read(p)
	if err != nil && !errors.Is(err, io.EOF) && f.err == nil {
		f.err = err
	}
	return n, err
}

func (f *contentFile) read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	if f.readerAt != f.at {
		f.close()
	}
	if f.reader == nil {
		r, err := f.files.Open(f.ctx, f.path, workspace.ReadOptions{Offset: f.at})
		if err != nil {
			return 0, err
		}
		f.reader, f.readerAt = r, f.at
		if info := r.Info(); info.Size != f.info.Size || !info.ModTime.Equal(f.info.ModTime) {
			return 0, errChanged
		}
	}
	n, err := f.reader.Read(p)
	f.at += int64(n)
	f.readerAt = f.at
	if errors.Is(err, io.EOF) && f.at < f.info.Size {
		err = errChanged // it was cut off, and the client was told its length
	}
	return n, err
}

// Seek opens nothing: the next read does.
func (f *contentFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.info.Size
	}
	if offset < 0 {
		return 0, fs.ErrInvalid
	}
	f.at = offset
	return offset, nil
}

func (f *contentFile) close() {
	if f.reader != nil {
		_ = f.reader.Close()
		f.reader = nil
	}
}

func registerUpload(g *Gateway) {
	register(g, huma.Operation{
		OperationID: "put-content", Method: http.MethodPut, Path: "/sessions/{session_id}/files/content", Tags: []string{tagFiles},
		Summary: "Upload a file",
		Description: "Of any size: it is streamed, and nothing of it is to be seen before all of it has arrived, where the provider can do that. " +
			"Parents that are missing are made. Relative paths begin at the working directory.",
		RequestBody:   rawBody(false, "The content"),
		DefaultStatus: http.StatusNoContent,
	}, bySession, failures{
		text: append([]int{http.StatusUnsupportedMediaType}, workspaceFailures...),
		file: []int{http.StatusBadRequest, http.StatusNotFound, http.StatusPreconditionFailed},
	}, func(ctx context.Context, in *struct {
		rawRequest
		SessionID       string `path:"session_id" maxLength:"64" doc:"The session's id"`
		Path            string `query:"path" doc:"In the workspace; any byte but NUL, percent-encoded"`
		PathB64         string `query:"path_b64" doc:"The path in base64url, instead"`
		Mode            string `query:"mode" pattern:"^[0-7]{1,4}$" doc:"Permissions of a file that is made, in octal; 644 without"`
		IfNoneMatch     string `header:"If-None-Match" doc:"* for a file that must not be there yet"`
		IfMatch         string `header:"If-Match" doc:"Refused: a condition on what is there could not be kept"`
		IfUnmodified    string `header:"If-Unmodified-Since" doc:"Refused, as If-Match"`
		ContentRange    string `header:"Content-Range" doc:"Refused: a file is written whole"`
		ContentEncoding string `header:"Content-Encoding" doc:"Refused, but identity"`
	}) (*struct{}, error) {
		request, _ := in.unwrap()
		defer drain(request.Body) // so that a client who sends all of it first gets to the answer
		path, err := chosenPath(in.Path, in.PathB64)
		if err != nil {
			return nil, err
		}
		var options workspace.WriteOptions
		switch {
		case in.ContentEncoding != "" && in.ContentEncoding != "identity":
			return nil, errText(http.StatusUnsupportedMediaType, "want a body without a Content-Encoding")
		case in.IfMatch != "" || in.IfUnmodified != "" || in.ContentRange != "" || in.IfNoneMatch != "" && in.IfNoneMatch != "*":
			return nil, errText(http.StatusBadRequest, "of conditions an upload has If-None-Match: * alone, and no Content-Range")
		}
		options.Exclusive = in.IfNoneMatch == "*"
		if in.Mode != "" {
			mode, err := strconv.ParseUint(in.Mode, 8, 12)
			if err != nil || mode > 0o777 || mode == 0 {
				return nil, errInvalid("value_error", "want permissions in octal, as 644", in.Mode, "query", "mode")
			}
			options.Mode = fs.FileMode(mode)
		}
		return nil, g.upload(ctx, in.SessionID, path, options, request.Body)
	})
}

// upload writes a body to a file.
func (g *Gateway) upload(ctx context.Context, id, path string, options workspace.WriteOptions, body io.Reader) (err error) {
	use, err := g.sessions.Acquire(ctx, id)
	if err != nil {
		return err
	}
	defer use.Release()
	o := g.observe(id, "write", path)
	defer func() { o.failed(err) }()
	live, cancel := use.Context(ctx)
	defer cancel()
	err = writeStream(live, use.Workspace, path, options, body)
	if options.Exclusive && errors.Is(err, fs.ErrExist) {
		return errFile(http.StatusPreconditionFailed, "FileExistsError", plain(path+" is there already"))
	}
	var wire *wireError
	if errors.As(err, &wire) { // the client's own fault
		return wire
	}
	return use.Check(context.WithoutCancel(ctx), err)
}
