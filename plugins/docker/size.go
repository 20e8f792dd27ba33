package docker

import (
	"encoding/json"
	"fmt"

	"github.com/docker/go-units"
	"github.com/invopop/jsonschema"

	"github.com/berth-dev/berth/shared/workspace"
)

// Size is a number of bytes: in a configuration a number, or a text as Docker
// writes it, such as 512m or 2g.
type Size int64

// UnmarshalJSON reads a number of bytes or the text form.
func (s *Size) UnmarshalJSON(data []byte) error {
	var n int64
	if json.Unmarshal(data, &n) == nil {
		*s = Size(n)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("size %s: want bytes, or a number with a unit, such as 512m: %w", data, workspace.ErrInvalid)
	}
	n, err := units.RAMInBytes(text)
	if err != nil {
		return fmt.Errorf("size %q: want bytes, or a number with a unit, such as 512m: %w", text, workspace.ErrInvalid)
	}
	*s = Size(n)
	return nil
}

// JSONSchema describes what UnmarshalJSON reads.
func (Size) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		OneOf: []*jsonschema.Schema{
			{Type: "integer", Minimum: "0"},
			{Type: "string", Pattern: `^[0-9]+(\.[0-9]+)? ?([bB]|[kKmMgGtT]([iI]?[bB])?)?$`},
		},
		Examples: []any{"512m", "2g"},
	}
}
