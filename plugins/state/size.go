package state

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/berth-dev/berth/shared/workspace"
)

// Size is a number of bytes. In a configuration it is a number or a text such
// as 64k, 512m or 10GiB: units are powers of 1024.
type Size int64

const sizePattern = `^[0-9]+([bB]|[kKmMgGtT]([iI]?[bB])?)?$`

var (
	sizeSyntax = regexp.MustCompile(sizePattern)
	sizeShifts = map[string]uint{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
)

// ParseSize reads the text form. The error wraps [workspace.ErrInvalid].
func ParseSize(text string) (Size, error) {
	if !sizeSyntax.MatchString(text) {
		return 0, fmt.Errorf("size %q: want bytes, or a number with a unit, such as 512m or 10GiB: %w", text, workspace.ErrInvalid)
	}
	digits := strings.TrimRight(text, "bBiIkKmMgGtT")
	unit := strings.TrimRight(strings.ToLower(text[len(digits):]), "ib")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift := sizeShifts[unit]
	if err != nil || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("size %q: over %d bytes: %w", text, int64(math.MaxInt64), workspace.ErrInvalid)
	}
	return Size(n << shift), nil
}

// UnmarshalJSON reads a number of bytes or the text form.
func (s *Size) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		text = string(data)
	}
	size, err := ParseSize(text)
	if err != nil {
		return err
	}
	*s = size
	return nil
}

// JSONSchema describes what UnmarshalJSON reads.
func (Size) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		OneOf: []*jsonschema.Schema{
			{Type: "integer", Minimum: "0"},
			{Type: "string", Pattern: sizePattern},
		},
		Examples: []any{"512m", "10GiB", 1048576},
	}
}
