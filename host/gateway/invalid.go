package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
)

// What huma says of a body that is not to be read at all.
const (
	bodyMissing    = "request body is required"
	bodyUnreadable = "cannot read request body"
)

// maxEcho is the longest value that an error repeats: enough to be recognised.
const maxEcho = 256

// translate turns an error of huma's into one of the wire. A body that is not JSON
// is a 422 there, as one of another shape is.
func translate(model *huma.ErrorModel) *wireError {
	switch {
	case model.Status == http.StatusBadRequest && model.Detail == bodyMissing:
		return errInvalid("missing", "Field required", nil, "body")
	case model.Status == http.StatusInternalServerError && model.Detail == bodyUnreadable:
		wire := errText(http.StatusBadRequest, "the request's body could not be read")
		wire.cause = causeOf(model)
		return wire
	case model.Status == http.StatusBadRequest, model.Status == http.StatusUnprocessableEntity:
		details := make([]invalidDetail, len(model.Errors))
		for i, fault := range model.Errors {
			details[i] = explain(fault)
		}
		return &wireError{status: http.StatusUnprocessableEntity, detail: details}
	case model.Status == http.StatusUnsupportedMediaType:
		return errText(model.Status, "want a body of "+jsonType)
	case model.Status == http.StatusInternalServerError:
		return &wireError{status: model.Status, cause: causeOf(model)}
	}
	return errText(model.Status, model.Detail)
}

func causeOf(model *huma.ErrorModel) error {
	errs := make([]error, len(model.Errors))
	for i, detail := range model.Errors {
		errs[i] = detail
	}
	return errors.Join(errs...)
}

// kinds are what pydantic, and so sandboxd's clients, call the faults that huma
// finds, by the beginning of its message.
var kinds = []struct{ message, kind string }{
	{validation.MsgExpectedMatchPattern, "string_pattern_mismatch"},
	{validation.MsgExpectedRequiredProperty, "missing"},
	{"required", "missing"}, // a parameter
	{validation.MsgUnexpectedProperty, "extra_forbidden"},
	{validation.MsgExpectedMinItems, "too_short"},
	{validation.MsgExpectedMaxItems, "too_long"},
	{validation.MsgExpectedMinLength, "string_too_short"},
	{validation.MsgExpectedMaxLength, "string_too_long"},
	{validation.MsgExpectedExclusiveMinimumNumber, "greater_than"},
	{validation.MsgExpectedMinimumNumber, "greater_than_equal"},
	{validation.MsgExpectedMaximumNumber, "less_than_equal"},
	{validation.MsgExpectedBoolean, "bool_type"},
	{validation.MsgExpectedInteger, "int_type"},
	{validation.MsgExpectedNumber, "float_type"},
	{validation.MsgExpectedString, "string_type"},
	{validation.MsgExpectedArray, "list_type"},
	{validation.MsgExpectedObject, "dict_type"},
	{"invalid integer", "int_parsing"}, // of a parameter
	{"invalid float", "float_parsing"},
	{"invalid boolean", "bool_parsing"},
}

// explain turns one fault into the wire's shape.
func explain(fault *huma.ErrorDetail) invalidDetail {
	loc := location(fault.Location)
	detail := invalidDetail{Type: "value_error", Loc: loc, Msg: fault.Message, Input: echo(loc, fault.Value)}
	for _, k := range kinds {
		prefix, _, _ := strings.Cut(k.message, "%")
		if strings.HasPrefix(fault.Message, prefix) {
			detail.Type = k.kind
			break
		}
	}
	switch detail.Type {
	case "missing":
		detail.Msg = "Field required"
		if name := missingProperty(fault.Message); name != "" {
			detail.Loc = append(detail.Loc, name)
		}
	case "extra_forbidden":
		detail.Msg = "Extra inputs are not permitted"
	}
	if offset, reason, ok := strings.Cut(fault.Message, ": "); ok && len(loc) == 1 {
		if n, err := strconv.ParseInt(offset, 10, 64); err == nil { // of a syntaxError
			return invalidDetail{
				Type: "json_invalid", Loc: []any{"body", n}, Msg: "JSON decode error",
				Input: map[string]any{}, Ctx: map[string]any{"error": reason},
			}
		}
	}
	return detail
}

// missingProperty is the name in huma's message about one, which the location
// does not have.
func missingProperty(message string) string {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	name, ok := strings.CutPrefix(message, before)
	if !ok {
		return ""
	}
	return strings.TrimSuffix(name, after)
}

// location reads "body.argv[0]".
func location(text string) []any {
	loc := []any{}
	for part := range strings.SplitSeq(text, ".") {
		name, indexes, _ := strings.Cut(part, "[")
		loc = append(loc, name)
		for index := range strings.SplitSeq(strings.TrimSuffix(indexes, "]"), "][") {
			if n, err := strconv.Atoi(index); err == nil {
				loc = append(loc, n)
			}
		}
	}
	return loc
}

// echo is the value that an error repeats: a short one that is no secret, as all
// values of env are (contract B7).
func echo(loc []any, value any) any {
	if len(loc) < 2 || len(loc) > 1 && loc[1] == "env" {
		return nil
	}
	switch v := value.(type) {
	case string:
		if len(v) <= maxEcho && v != "" {
			return v
		}
	case bool, float64, int64, int, nil:
		return v
	case []any:
		if len(v) == 0 {
			return v
		}
	}
	return nil
}
