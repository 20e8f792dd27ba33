package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// isJSON says whether a body of that content type is read as JSON. None is taken
// for it, as by the service whose wire this is.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == jsonType || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// syntaxError is a body that is not JSON. Its text is its offset and what is wrong
// there, in which it survives the validation.
type syntaxError struct {
	offset int64
	reason string
}

func (e *syntaxError) Error() string { return strconv.FormatInt(e.offset, 10) + ": " + e.reason }

// unmarshal reads JSON without ever reading something else than what was sent. The
// standard library replaces what is not Unicode with U+FFFD, and a path with that
// is another path; and it takes "Path" for "path", so that of two such keys the
// one that was validated need not be the one that is used.
func unmarshal(data []byte, value any) error {
	if offset := invalidText(data); offset >= 0 {
		return &syntaxError{int64(offset), "is not UTF-8, or half of a surrogate pair"}
	}
	err := json.Unmarshal(data, value)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return &syntaxError{syntax.Offset, syntax.Error()}
	case errors.As(err, &mismatch) && strings.HasPrefix(mismatch.Value, "number "):
		return unmarshalIntegers(data, value)
	case err != nil:
		return err
	}
	if document, ok := value.(*any); ok {
		return distinctKeys(*document)
	}
	return nil
}

// unmarshalIntegers reads JSON in which 7.0 and 1e3 are whole numbers, as they are
// to its schemas.
func unmarshalIntegers(data []byte, value any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return err
	}
	plainer, err := json.Marshal(integers(document))
	if err != nil {
		return err
	}
	return json.Unmarshal(plainer, value)
}

// integers writes whole numbers without a point or an exponent.
func integers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<63 && strings.ContainsAny(v.String(), ".eE") {
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
	}
	return value
}

// distinctKeys refuses an object with two keys that differ in nothing but case.
func distinctKeys(value any) error {
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	seen := make(map[string]bool, len(object))
	for key := range object {
		folded := strings.ToLower(strings.ToUpper(key)) // both, for the Kelvin sign and the long s
		if seen[folded] {
			return &syntaxError{0, fmt.Sprintf("the key %.64q is there twice, in different case", key)}
		}
		seen[folded] = true
	}
	return nil
}

// invalidText is the offset of a byte that is not UTF-8, or of an escape that is
// half of a surrogate pair; -1 without one.
func invalidText(data []byte) int {
	if !utf8.Valid(data) {
		for i := 0; i < len(data); {
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size == 1 {
				return i
			}
			i += size
		}
	}
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		switch kind := surrogate(data[i:]); kind {
		case notSurrogate:
			i++ // what is escaped
		case highSurrogate:
			if surrogate(data[min(i+escapeLength, len(data)):]) != lowSurrogate {
				return i
			}
			i += 2*escapeLength - 1
		case lowSurrogate:
			return i
		}
	}
	return -1
}

// escapeLength is that of \uXXXX.
const escapeLength = 6

// What an escape is, of those that go in pairs.
const (
	notSurrogate = iota
	highSurrogate
	lowSurrogate
)

// surrogate says what an escape is that the text may begin with.
func surrogate(data []byte) int {
	if len(data) < escapeLength || data[0] != '\\' || data[1] != 'u' {
		return notSurrogate
	}
	code, err := strconv.ParseUint(string(data[2:escapeLength]), 16, 16)
	switch {
	case err != nil || code < 0xD800 || code > 0xDFFF:
		return notSurrogate
	case code < 0xDC00:
		return highSurrogate
	}
	return lowSurrogate
}
