package process

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

func TestParseLine(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	tests := []struct {
		name, line string
		cut        int
		level      hclog.Level
		message    string
		args       []any
	}{
		{name: "hclog", line: `{"@level":"warn","@message":"low disk","@module":"docker","@timestamp":"2026-01-02T03:04:05.6Z","free":12,"tags":["a","b"]}`,
			level: hclog.Warn, message: "low disk", args: []any{"module", "docker", "timestamp", "2026-01-02T03:04:05.6Z", "free", "12", "tags", `["a","b"]`}},
		{name: "no level", line: `{"@message":"hello"}`, level: hclog.Info, message: "hello"},
		{name: "message of a wrong type", line: `{"@message": 1}`, level: hclog.Info, message: `{"@message": 1}`},
		{name: "level of a wrong type", line: `{"@level":[],"@message":"x"}`, level: hclog.Info, message: `{"@level":[],"@message":"x"}`},
		{name: "unknown level", line: `{"@level":"loud","@message":"x"}`, level: hclog.Info, message: `{"@level":"loud","@message":"x"}`},
		{name: "array", line: `[]`, level: hclog.Info, message: `[]`},
		{name: "number", line: `1`, level: hclog.Info, message: `1`},
		{name: "null", line: `null`, level: hclog.Info, message: `null`},
		{name: "empty", line: ``, level: hclog.Info, message: ``},
		{name: "NUL and bad UTF-8", line: "a\x00b\xffc\x1b[31m", level: hclog.Info, message: "a\\x00b\ufffdc\\x1b[31m"},
		{name: "two objects", line: `{"@message":"a"}{"@message":"b"}`, level: hclog.Info, message: `{"@message":"a"}{"@message":"b"}`},
		{name: "text after it", line: `{"@message":"a"} tail`, level: hclog.Info, message: `{"@message":"a"} tail`},
		{name: "unfinished", line: `{"@message":"a"`, level: hclog.Info, message: `{"@message":"a"`},
		{name: "prefix", line: "[ERROR] boom", level: hclog.Error, message: "[ERROR] boom"},
		{name: "panic", line: "panic: boom", level: hclog.Error, message: "panic: boom"},
		{name: "plain", line: "loading", level: hclog.Info, message: "loading"},
		{name: "cut text", line: "abc", cut: 5, level: hclog.Info, message: "abc", args: []any{"truncated", true, "bytes_missing", 5}},
		{name: "cut message", line: `{"@level":"error","@message":"` + long, cut: 9, level: hclog.Error, message: long, args: []any{"truncated", true, "bytes_missing", 9}},
		{name: "cut within an escape", line: `{"@level":"error","@message":"ab\ud83d\ude`, cut: 9, level: hclog.Error, message: "ab\ufffd", args: []any{"truncated", true, "bytes_missing", 9}},
		{name: "cut after the message", line: `{"@level":"error","@message":"ab","list":[1,2,`, cut: 9, level: hclog.Error, message: "ab", args: []any{"truncated", true, "bytes_missing", 9}},
		{name: "cut before the message", line: `{"@level":"error","@mess`, cut: 9, level: hclog.Info, message: `{"@level":"error","@mess`, args: []any{"truncated", true, "bytes_missing", 9}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rec := parseLine([]byte(test.line), test.cut)
			if rec.level != test.level || rec.message != test.message || fmt.Sprint(rec.args) != fmt.Sprint(test.args) {
				t.Errorf("got %v %.200q %v", rec.level, rec.message, rec.args)
			}
		})
	}
}

func TestParseLineKeepsAFewPairs(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"@message":"m"`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	b.WriteString("}")
	if rec := parseLine([]byte(b.String()), 0); len(rec.args) != 2*maxPairs || rec.message != "m" {
		t.Errorf("%d pairs, message %q", len(rec.args)/2, rec.message)
	}
}

// Whatever a plugin writes, the host lives and shows something printable.
func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{`{"@message":1}`, `{"@level":[]}`, `[]`, "\x00", "\xff\xfe", `{"@level":"error","@message":"x`, `{"a":{"b":[{}]}}`, `{"":1,"@timestamp":{}}`} {
		f.Add([]byte(seed), 0)
		f.Add([]byte(seed), 7)
	}
	f.Fuzz(func(t *testing.T, line []byte, cut int) {
		rec := parseLine(line, cut)
		if !utf8.ValidString(rec.message) || len(rec.args)%2 != 0 {
			t.Errorf("%q becomes %q %v", line, rec.message, rec.args)
		}
		if !rec.json && rec.message != printable(string(line)) {
			t.Errorf("%q was not kept: %q", line, rec.message)
		}
		hclog.NewNullLogger().Log(rec.level, rec.message, rec.args...)
		_ = rec.String()
	})
}

func TestLines(t *testing.T) {
	type line struct {
		text string
		cut  int
	}
	var got []line
	l := &lines{emit: func(b []byte, cut int) { got = append(got, line{string(b), cut}) }}
	for _, part := range []string{"a\nb", "c\r\n\n", strings.Repeat("x", maxLine), "yy", "y\nlast"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	l.flush()
	l.flush()
	want := []line{{"a", 0}, {"bc", 0}, {"", 0}, {strings.Repeat("x", maxLine), 3}, {"last", 0}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %.300v", got)
	}
}
