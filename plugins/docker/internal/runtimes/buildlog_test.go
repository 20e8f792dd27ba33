package runtimes

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

var testSteps = []instruction{{says: "FROM debian"}, {says: "apt-get update"}, {says: "first\nsecond"}}

// stream is what an engine sends: objects, one after the other.
func stream(objects ...any) string {
	var b strings.Builder
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		b.Write(text)
		b.WriteString("\r\n")
	}
	return b.String()
}

func line(s string) map[string]string { return map[string]string{"stream": s} }

func failed(code int, message string) map[string]any {
	return map[string]any{"errorDetail": map[string]any{"code": code, "message": message}, "error": message}
}

func TestBuildLog(t *testing.T) {
	whole := stream(
		line("Step 1/3 : FROM debian\n"), line(" ---> abc\n"), line("Step 2/3 : RUN x"), line("\n"), line("out"), line("put\n"),
		line("Step 3/3 : RUN y\n"), map[string]any{"aux": map[string]string{"ID": "sha256:123"}}, line("Successfully built 123\n"),
	)
	var told []string
	log := &buildLog{steps: testSteps, report: func(_ int, says string) { told = append(told, says) }}
	id, err := log.read(iotest.OneByteReader(strings.NewReader(whole)))
	if err != nil || id != "sha256:123" {
		t.Errorf("read %q, %v", id, err)
	}
	if want := []string{"FROM debian", "apt-get update", "first…"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestBuildLogFails(t *testing.T) {
	many := make([]any, 0, 100)
	many = append(many, line("Step 2/3 : RUN x\n"))
	for i := range 100 {
		many = append(many, line(strings.Repeat("é", 400)+"\n"), line(strings.Repeat("x", i)+"\n"))
	}
	for _, test := range []struct {
		name   string
		stream string
		says   []string
		not    []string
	}{
		{
			name: "a command", stream: stream(line("Step 1/3 : FROM debian\n"), line("old\n"), line("Step 2/3 : RUN x\n"), line(" ---> Running in 12\n"),
				line("\x1b[91mE: no such \tpackage\n\x1b[0m"), line("10%\r50%\r100%\n"), line("no newline"), failed(100, "The command '/bin/sh' returned a non-zero code: 100")),
			says: []string{"step 2 of 3", "apt-get update", "exit code 100", "E: no such  package", "\n100%\nno newline"}, not: []string{"\x1b", "old", "50%", "Running in"},
		},
		{name: "before any step", stream: stream(failed(0, "dockerfile parse error")), says: []string{"dockerfile parse error"}},
		{name: "without a code", stream: stream(line("Step 3/3 : RUN\n"), failed(0, "OCI runtime create failed")), says: []string{"step 3 of 3", "first…", "OCI runtime create failed"}},
		{name: "a flood", stream: stream(append(many, failed(1, "x"))...), says: []string{"exit code 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := (&buildLog{steps: testSteps, report: func(int, string) {}}).read(strings.NewReader(test.stream))
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range test.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			for _, s := range test.not {
				if strings.Contains(err.Error(), s) {
					t.Errorf("%q says %q", err, s)
				}
			}
			if len(err.Error()) > 2*shownLines*shownLine {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
		})
	}
}

// A stream that ends early is no success, wherever it ends.
func TestBuildLogEndsEarly(t *testing.T) {
	for _, text := range []string{"", stream(line("Step 1/3 : FROM x\n")), `{"stream":"Step 1`} {
		_, err := (&buildLog{steps: testSteps, report: func(int, string) {}}).read(strings.NewReader(text))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v, want an unexpected end", text, err)
		}
	}
}
