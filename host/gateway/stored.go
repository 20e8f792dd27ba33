package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

type listRequest struct {
	_    struct{} `json:"-" additionalProperties:"true"`
	Path string   `json:"path" doc:"Relative to the working directory, or absolute in it"`
}

type treeRequest struct {
	_          struct{} `json:"-" additionalProperties:"true"`
	Path       string   `json:"path,omitempty" default:"." doc:"Relative to the working directory, or absolute in it"`
	MaxDepth   int      `json:"max_depth,omitempty" minimum:"1" maximum:"64" default:"6" doc:"How many levels are listed"`
	MaxEntries int      `json:"max_entries,omitempty" minimum:"1" maximum:"100000" default:"2000"`
}

type treesRequest struct {
	_          struct{}   `json:"-" additionalProperties:"true"`
	Sessions   sessionIDs `json:"sessions" doc:"The sessions' ids"`
	Path       string     `json:"path,omitempty" default:"." doc:"Relative to the working directory, or absolute in it"`
	MaxDepth   int        `json:"max_depth,omitempty" minimum:"1" maximum:"64" default:"6" doc:"How many levels are listed"`
	MaxEntries int        `json:"max_entries,omitempty" minimum:"1" maximum:"100000" default:"2000" doc:"Of each session"`
}

// sessionIDs are those of one request.
type sessionIDs []string

// Schema has the pattern in each, which a tag of the field cannot say.
func (sessionIDs) Schema(huma.Registry) *huma.Schema {
	least, most := 1, 100
	return &huma.Schema{Type: huma.TypeArray, MinItems: &least, MaxItems: &most, Items: &huma.Schema{Type: huma.TypeString, Pattern: aliasName.String()}}
}

type treeAnswer struct {
	Entries   entryList `json:"entries" doc:"Level by level"`
	Truncated bool      `json:"truncated" doc:"There is more than is listed"`
}

// treeResult is the tree of one session, or why there is none.
type treeResult struct {
	SessionID  string             `json:"session_id"`
	Tree       orNull[treeAnswer] `json:"tree"`
	Error      *string            `json:"error"`
	StatusCode *int               `json:"status_code" doc:"What a call for this session alone would have answered"`
}

// orNull is an object or null: the schema of a pointer does not say the latter.
type orNull[T any] struct{ value *T }

// Schema is that of either.
func (orNull[T]) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{r.Schema(reflect.TypeFor[T](), true, ""), {Type: "null"}}}
}

// MarshalJSON writes the object.
func (o orNull[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.value) }

type treesAnswer struct {
	Results []treeResult `json:"results" nullable:"false"`
}

type textRequest struct {
	_      struct{} `json:"-" additionalProperties:"true"`
	Path   string   `json:"path" doc:"Relative to the working directory, or absolute in it"`
	Offset int      `json:"offset,omitempty" minimum:"0" default:"0" doc:"The first line, counted from 0"`
	Limit  int      `json:"limit,omitempty" minimum:"1" default:"2000" doc:"How many lines"`
}

type textAnswer struct {
	Content string `json:"content"`
}

type bytesAnswer struct {
	ContentB64 string `json:"content_b64"`
}

// treesAtOnce is how many sessions of one request are read at a time: some may have
// to be woken.
const treesAtOnce = 4

func registerStored(g *Gateway) {
	may := failures{text: append([]int{http.StatusBadRequest, http.StatusNotFound}, workspaceFailures...)}
	operation := func(name, summary string) huma.Operation {
		return huma.Operation{
			OperationID: "stored-" + name, Method: http.MethodPost, Path: "/workspaces/{session_id}/" + name, Tags: []string{tagWorkspaces},
			Summary: summary, Description: "Of a session that is open or closed. It is not started for this where the provider can read what it keeps. Links are left out, and not followed.",
		}
	}

	type entries struct{ Body entryList }
	register(g, operation("ls", "List a folder"), byService, may, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" doc:"The session's id"`
		Body      listRequest
	}) (*entries, error) {
		out := &entries{}
		err := g.stored(ctx, in.SessionID, func(s *storedFiles) (err error) {
			out.Body, err = s.list(ctx, in.Body.Path)
			return err
		})
		return out, err
	})

	type tree struct{ Body treeAnswer }
	register(g, operation("tree", "List a folder and those below it"), byService, may, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" doc:"The session's id"`
		Body      treeRequest
	}) (*tree, error) {
		out := &tree{}
		err := g.stored(ctx, in.SessionID, func(s *storedFiles) (err error) {
			out.Body, err = s.tree(ctx, in.Body.Path, in.Body.MaxDepth, in.Body.MaxEntries)
			return err
		})
		return out, err
	})

	type trees struct{ Body treesAnswer }
	register(g, huma.Operation{
		OperationID: "stored-trees", Method: http.MethodPost, Path: "/workspaces/trees", Tags: []string{tagWorkspaces},
		Summary: "List the same folder of several sessions", Description: "What is wrong with one of them is told in its place.",
	}, byService, failures{text: []int{http.StatusServiceUnavailable}}, func(ctx context.Context, in *struct{ Body treesRequest }) (*trees, error) {
		return &trees{treesAnswer{g.trees(ctx, in.Body)}}, nil
	})

	type text struct{ Body textAnswer }
	register(g, operation("read", "Read lines of a text file"), byService, may, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" doc:"The session's id"`
		Body      textRequest
	}) (*text, error) {
		out := &text{}
		err := g.stored(ctx, in.SessionID, func(s *storedFiles) error {
			data, err := s.read(ctx, in.Body.Path)
			if err == nil {
				out.Body.Content, err = textLines(data, in.Body.Offset, in.Body.Limit)
			}
			return err
		})
		return out, err
	})

	type content struct{ Body bytesAnswer }
	register(g, operation("read_bytes", "Read a whole file"), byService, may, func(ctx context.Context, in *struct {
		SessionID string `path:"session_id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" doc:"The session's id"`
		Body      listRequest
	}) (*content, error) {
		out := &content{}
		err := g.stored(ctx, in.SessionID, func(s *storedFiles) error {
			data, err := s.read(ctx, in.Body.Path)
			out.Body.ContentB64 = base64.StdEncoding.EncodeToString(data)
			return err
		})
		return out, err
	})
}

// stored has something read what is kept of a session.
func (g *Gateway) stored(ctx context.Context, id string, do func(*storedFiles) error) error {
	files, err := g.sessions.Stored(ctx, id)
	if err != nil {
		return err
	}
	defer files.Release()
	return do(&storedFiles{files: files, most: g.sessions.Policy().MaxReadBytes})
}

// trees lists each session's tree.
func (g *Gateway) trees(ctx context.Context, in treesRequest) []treeResult {
	results := make([]treeResult, len(in.Sessions))
	turns := make(chan struct{}, treesAtOnce)
	var all sync.WaitGroup
	for i, id := range in.Sessions {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			results[i] = g.treeOf(ctx, id, in)
		})
	}
	all.Wait()
	return results
}

func (g *Gateway) treeOf(ctx context.Context, id string, in treesRequest) treeResult {
	result := treeResult{SessionID: id}
	err := g.stored(ctx, id, func(s *storedFiles) error {
		tree, err := s.tree(ctx, in.Path, in.MaxDepth, in.MaxEntries)
		result.Tree.value = &tree
		return err
	})
	if err == nil {
		return result
	}
	status, text := http.StatusInternalServerError, http.StatusText(http.StatusInternalServerError)
	var wire *wireError
	if errors.As(mapError(err), &wire) {
		status = wire.status
		if detail, ok := wire.detail.(string); ok {
			text = detail
		}
	}
	return treeResult{SessionID: id, Error: &text, StatusCode: &status}
}
