package gateway

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// tokenHeader carries the service's token, or a session's.
const tokenHeader = "X-Sandbox-Token"

// tokenScheme is the name of that in the OpenAPI document.
const tokenScheme = "sandboxToken"

// access says whose token an operation takes.
type access int

const (
	byAnyone  access = iota // without a token
	byService               // with the service's token
	bySession               // with the service's, or that of the session in the path
)

// accessKey is where an operation's metadata hold its access.
const accessKey = "access"

// The tags that operations are grouped by in the OpenAPI document.
const (
	tagService    = "service"
	tagSessions   = "sessions"
	tagRuns       = "runs"
	tagFiles      = "files"
	tagWorkspaces = "stored workspaces"
)

// failures are the statuses that an operation may answer besides success, and
// besides those that all have.
type failures struct {
	text []int // in words: textBody
	file []int // about a path: fileBody
}

// register adds an operation to the API. Its handler's errors are answered as
// mapError says. Who may call it is decided before anything of its body is read.
func register[I, O any](g *Gateway, op huma.Operation, who access, may failures, handler func(context.Context, *I) (*O, error)) {
	describe(g.api, &op, reflect.TypeFor[I](), who, may)
	huma.Register(g.api, op, func(ctx context.Context, input *I) (*O, error) {
		output, err := handler(ctx, input)
		if err != nil && errors.Is(context.Cause(ctx), errShutdown) && slices.Contains(may.text, http.StatusBadGateway) {
			err = cutOff(err)
		}
		if err != nil {
			return nil, mapError(err)
		}
		return output, nil
	})
}

// describe writes down every answer that an operation may give.
func describe(api huma.API, op *huma.Operation, input reflect.Type, who access, may failures) {
	if op.Metadata == nil {
		op.Metadata = make(map[string]any)
	}
	op.Metadata[accessKey] = who
	text := append([]int{http.StatusInternalServerError}, may.text...)
	if who != byAnyone {
		op.Security = []map[string][]string{{tokenScheme: {}}}
		text = append(text, http.StatusUnauthorized)
	}
	if who == bySession {
		text = append(text, http.StatusNotFound)
	}
	_, decoded := input.FieldByName("Body")
	if decoded {
		text = append(text, http.StatusUnsupportedMediaType)
		op.BodyReadTimeout = -1 // the exchange has its own
	}
	if decoded || op.RequestBody != nil {
		text = append(text, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge)
	}
	if op.Responses == nil {
		op.Responses = make(map[string]*huma.Response)
	}
	schemas := api.OpenAPI().Components.Schemas
	answer := func(status int, of ...reflect.Type) {
		var schema *huma.Schema
		for _, t := range of {
			s := schemas.Schema(t, true, "")
			switch {
			case schema == nil:
				schema = s
			case schema.OneOf == nil:
				schema = &huma.Schema{OneOf: []*huma.Schema{schema, s}}
			}
		}
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status),
			Content:     map[string]*huma.MediaType{jsonType: {Schema: schema}},
		}
	}
	inWords, aboutPath := reflect.TypeFor[textBody](), reflect.TypeFor[fileBody]()
	for _, status := range text {
		if slices.Contains(may.file, status) {
			answer(status, inWords, aboutPath)
		} else {
			answer(status, inWords)
		}
	}
	for _, status := range may.file {
		if !slices.Contains(text, status) {
			answer(status, aboutPath)
		}
	}
	if input.NumField() > 0 {
		answer(http.StatusUnprocessableEntity, reflect.TypeFor[invalidBody]())
	}
}
