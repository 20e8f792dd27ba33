package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/shared/workspace"
)

// fileEntry is a file in a listing. It is what a link leads to that is told.
type fileEntry struct {
	Name       string  `json:"name"`
	Path       string  `json:"path"`
	IsDir      bool    `json:"is_dir"`
	Size       *int64  `json:"size" doc:"In bytes; null for what is no regular file"`
	ModifiedAt *string `json:"modified_at" doc:"ISO 8601, in UTC; null where it is not known, and for folders"`
}

// pathRequest is a path of a file operation.
type pathRequest struct {
	_    struct{} `json:"-" additionalProperties:"true"`
	Path string   `json:"path" doc:"Absolute, in the workspace"`
}

type pathAnswer struct {
	Path string `json:"path"`
}

// fileInput is what most file operations get.
type fileInput struct {
	SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
	Body      pathRequest
}

// nativeHint is said of every native operation.
const nativeHint = " A 409 whose detail is text means that this one is to be had by a command alone."

func registerFiles(g *Gateway) {
	native := failures{
		text: []int{http.StatusConflict, http.StatusGone, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable},
		file: []int{http.StatusBadRequest, http.StatusNotFound},
	}
	operation := func(name, summary, description string) huma.Operation {
		return huma.Operation{
			OperationID: name + "-file", Method: http.MethodPost, Path: "/sessions/{session_id}/files/" + name,
			Tags: []string{tagFiles}, Summary: summary, Description: strings.TrimSpace(description + nativeHint),
		}
	}

	read := operation("read", "Read a whole file", "")
	read.Responses = map[string]*huma.Response{"200": {Description: "The file", Content: map[string]*huma.MediaType{
		bytesType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}}
	register(g, read, bySession, native, func(ctx context.Context, in *fileInput) (*streamed, error) {
		return g.readNative(ctx, in.SessionID, in.Body.Path)
	})

	write := operation("write", "Write a whole file", "Parents that are missing are made.")
	write.RequestBody = rawBody(false, "The content")
	write.DefaultStatus = http.StatusNoContent
	register(g, write, bySession, native, func(ctx context.Context, in *struct {
		rawRequest
		SessionID string `path:"session_id" maxLength:"64" doc:"The session's id"`
		Path      string `query:"path" required:"true" doc:"Absolute, in the workspace"`
	}) (*struct{}, error) {
		request, _ := in.unwrap()
		defer drain(request.Body) // so that a client who sends all of it first gets to the answer
		return nil, g.file(ctx, in.SessionID, "write", in.Path, func(ws workspace.Workspace) error {
			return writeNative(ctx, ws, in.Path, request, g.sessions.Policy().MaxReadBytes)
		})
	})

	type entry struct{ Body fileEntry }
	register(g, operation("stat", "Tell what a path is", "Links are followed."), bySession, native, func(ctx context.Context, in *fileInput) (*entry, error) {
		out := &entry{}
		err := g.file(ctx, in.SessionID, "stat", in.Body.Path, func(ws workspace.Workspace) error {
			info, err := ws.Stat(ctx, in.Body.Path)
			if err == nil && !info.IsDir() && !info.Mode.IsRegular() {
				err = errNative(in.Body.Path, "is no regular file")
			}
			out.Body = entryAt(in.Body.Path, baseName(in.Body.Path), info)
			return err
		})
		return out, err
	})

	type entries struct{ Body entryList }
	register(g, operation("list", "List a folder", "Links are told as what they lead to, one that leads nowhere as no folder."), bySession, native, func(ctx context.Context, in *fileInput) (*entries, error) {
		out := &entries{}
		err := g.file(ctx, in.SessionID, "ls", in.Body.Path, func(ws workspace.Workspace) error {
			infos, err := ws.ReadDir(ctx, in.Body.Path)
			if err != nil {
				return err
			}
			dir := cleanDir(in.Body.Path)
			out.Body = make(entryList, len(infos))
			for i, info := range infos {
				if !utf8.ValidString(info.Name) {
					return errNative(in.Body.Path, "holds a name that is not UTF-8")
				}
				out.Body[i] = entryAt(dir+info.Name, info.Name, info)
			}
			return nil
		})
		return out, err
	})

	register(g, noContent(operation("mkdir", "Make a folder", "Parents that are missing are made, and one that is there is a success.")), bySession, native, func(ctx context.Context, in *fileInput) (*struct{}, error) {
		return nil, g.file(ctx, in.SessionID, "mkdir", in.Body.Path, func(ws workspace.Workspace) error {
			return ws.MkdirAll(ctx, in.Body.Path)
		})
	})

	register(g, noContent(operation("remove", "Remove a file, or a folder with all that is in it", "Links are not followed. The working directory and what holds it are refused.")), bySession, native, func(ctx context.Context, in *fileInput) (*struct{}, error) {
		return nil, g.file(ctx, in.SessionID, "remove", in.Body.Path, func(ws workspace.Workspace) error {
			return ws.Remove(ctx, in.Body.Path)
		})
	})

	type resolved struct{ Body pathAnswer }
	register(g, operation("realpath", "Resolve a path", "Links are followed, and names that are missing are kept."), bySession, native, func(ctx context.Context, in *fileInput) (*resolved, error) {
		out := &resolved{}
		err := g.file(ctx, in.SessionID, "realpath", in.Body.Path, func(ws workspace.Workspace) (err error) {
			out.Body.Path, err = ws.RealPath(ctx, in.Body.Path)
			if err == nil && !utf8.ValidString(out.Body.Path) {
				err = errNative(in.Body.Path, "leads to a name that is not UTF-8")
			}
			return err
		})
		return out, err
	})
}

// noContent is an operation whose answer is empty.
func noContent(op huma.Operation) huma.Operation {
	op.DefaultStatus = http.StatusNoContent
	return op
}

// file does one native operation on a session's workspace, and enters it into the
// session's log.
func (g *Gateway) file(ctx context.Context, id, op, path string, do func(workspace.Workspace) error) error {
	use, err := g.sessions.Acquire(ctx, id)
	if err != nil {
		return err
	}
	defer use.Release()
	o := g.observe(id, op, path)
	if err = checkPath(path); err == nil {
		err = nativeError(op, use.Check(context.WithoutCancel(ctx), do(use.Workspace)))
	}
	o.failed(err)
	return err
}

// checkPath refuses what the wire does not take.
func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errFile(http.StatusBadRequest, "ValueError", fmt.Sprintf("the path %.200q is not absolute", path))
	case strings.IndexByte(path, 0) >= 0:
		return errFile(http.StatusBadRequest, "ValueError", "the path holds a NUL byte")
	}
	return nil
}

// errNative hands an operation back to the client, which derives it from commands.
func errNative(path, why string) error {
	return errText(http.StatusConflict, plain(path+" "+why))
}

// nativeError decides what the client derives by a command (409). That is what it
// has no error class for on this wire, and so could only take for a fault of the
// service: its commands tell it what a file system refuses, also a permission.
func nativeError(op string, err error) error {
	var wire *wireError
	var refused *session.Error
	var path *fs.PathError
	switch {
	case err == nil, errors.As(err, &wire), errors.As(err, &refused):
		return err
	case errors.As(err, &path):
		mapped := mapPathError(path)
		detail, _ := mapped.detail.(fileDetail)
		special := (op == "read" || op == "write") && errors.Is(err, workspace.ErrInvalid) // the path itself was checked
		if special || !clientClasses[detail.Error] {
			return errText(http.StatusConflict, detail.Message)
		}
		return mapped
	case errors.Is(err, errors.ErrUnsupported):
		return errCause(http.StatusConflict, err)
	}
	return err
}

// clientClasses are the errors that a client of this wire raises as such.
var clientClasses = map[string]bool{
	"FileNotFoundError": true, "FileExistsError": true, "IsADirectoryError": true, "NotADirectoryError": true, "ValueError": true,
}

// maxDrain is how much of a body that nobody wants is read all the same: a client
// that sends before it reads would lose the answer with the connection.
const maxDrain = 16 << 20

func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, maxDrain) }

// entryList is a listing, which is never null.
type entryList []fileEntry

// Schema is that of an array.
func (entryList) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: r.Schema(reflect.TypeFor[fileEntry](), true, "")}
}

func entryAt(path, name string, info workspace.FileInfo) fileEntry {
	e := fileEntry{Name: name, Path: path, IsDir: info.IsDir()}
	if info.Mode.IsRegular() {
		size := info.Size
		e.Size = &size
	}
	if !e.IsDir && !info.ModTime.IsZero() {
		at := info.ModTime.UTC().Format(modifiedFormat)
		e.ModifiedAt = &at
	}
	return e
}

// modifiedFormat is ISO 8601 as Python writes it.
const modifiedFormat = "2006-01-02T15:04:05.000000-07:00"

// baseName is the last name of a path, empty of the root.
func baseName(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// cleanDir is a folder's path, such as names are put behind: what means nothing is
// left out, but .. stays, which may lead through a link.
func cleanDir(path string) string {
	var b strings.Builder
	b.WriteByte('/')
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			b.WriteString(name)
			b.WriteByte('/')
		}
	}
	return b.String()
}
