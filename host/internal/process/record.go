package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/hashicorp/go-hclog"
)

// maxPairs is how many key-value pairs of one record are kept.
const maxPairs = 64

// record is one line of a plugin's log.
type record struct {
	level   hclog.Level
	message string
	args    []any // keys and values, as hclog takes them
	size    int   // of the line, in bytes
	json    bool  // it was a record of hclog
}

// parseLine reads a line that a plugin wrote: hclog's JSON, or any bytes. Nothing
// in it is trusted. What is not a record of hclog is kept as it is. cut is how
// many bytes the line lacks at its end.
func parseLine(line []byte, cut int) record {
	rec, ok := parseJSON(line, cut > 0)
	if !ok {
		rec = parseText(string(line))
	}
	if cut > 0 {
		rec.args = append(rec.args, "truncated", true, "bytes_missing", cut)
	}
	rec.message = printable(rec.message)
	rec.size = len(line)
	return rec
}

// parseText recognizes the level that some loggers write first. A line without
// one is told at Info: whoever prints it wants it seen.
func parseText(line string) record {
	for _, p := range []struct {
		prefix string
		level  hclog.Level
	}{
		{"[TRACE]", hclog.Trace}, {"[DEBUG]", hclog.Debug}, {"[INFO]", hclog.Info}, {"[WARN]", hclog.Warn}, {"[ERROR]", hclog.Error},
		{"panic: ", hclog.Error}, {"fatal error: ", hclog.Error},
	} {
		if strings.HasPrefix(line, p.prefix) {
			return record{level: p.level, message: line}
		}
	}
	return record{level: hclog.Info, message: line}
}

// parseJSON walks over the members of one object. Of a line that was cut it
// takes what came before the cut.
func parseJSON(line []byte, cut bool) (record, bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(line, " \t\r\n"), []byte("{")) {
		return record{}, false // without the cost of a decoder, in a flood
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return record{}, false
	}
	rec := record{level: hclog.Info}
	var hasMessage bool
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			break
		}
		name, _ := key.(string)
		var raw json.RawMessage
		valueAt := dec.InputOffset()
		if err := dec.Decode(&raw); err != nil {
			if cut && name == "@message" {
				rec.message, hasMessage = cutString(line[valueAt:])
			}
			break
		}
		value, isString := text(raw)
		switch name {
		case "@message":
			rec.message, hasMessage = value, isString
		case "@level":
			if rec.level = hclog.LevelFromString(value); !isString || rec.level == hclog.NoLevel {
				return record{}, false
			}
		case "@timestamp", "@module", "@caller":
			rec.args = append(rec.args, name[1:], printable(value))
		default:
			if len(rec.args) < 2*maxPairs && name != "" {
				rec.args = append(rec.args, printable(name), printable(value))
			}
		}
	}
	if !cut {
		// The whole line must be the object: otherwise part of it would be lost.
		if end, err := dec.Token(); err != nil || end != json.Delim('}') || dec.More() {
			return record{}, false
		}
	}
	rec.json = true
	return rec, hasMessage
}

// text returns a JSON string's value, or any other value as it is written.
func text(raw json.RawMessage) (value string, isString bool) {
	if err := json.Unmarshal(raw, &value); err == nil && len(raw) > 0 && raw[0] == '"' {
		return value, true
	}
	return string(raw), false
}

// maxEscape is the longest escape in a JSON string: a surrogate pair.
const maxEscape = len(`\ud83d\ude00`)

// cutString reads the JSON string after a colon whose end is missing.
func cutString(rest []byte) (string, bool) {
	rest = bytes.TrimLeft(rest, ": \t")
	if len(rest) == 0 || rest[0] != '"' {
		return "", false
	}
	for drop := range min(maxEscape, len(rest)) { // the cut may be within an escape
		var value string
		if json.Unmarshal(append(bytes.Clone(rest[:len(rest)-drop]), '"'), &value) == nil {
			return value, true
		}
	}
	return "", false
}

// printable makes text fit for a log and a terminal: valid UTF-8 without control
// characters, which are written as Go writes them in a string.
func printable(s string) string {
	s = strings.ToValidUTF8(s, string(unicode.ReplacementChar))
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			quoted := fmt.Sprintf("%q", r)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }

// String is the record as one line for people, in an error's last lines.
func (r record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", strings.ToUpper(r.level.String()), r.message)
	for i := 0; i+1 < len(r.args); i += 2 {
		if r.args[i] != "timestamp" {
			fmt.Fprintf(&b, " %v=%v", r.args[i], r.args[i+1])
		}
	}
	return b.String()
}
