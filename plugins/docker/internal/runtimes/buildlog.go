package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/pkg/jsonmessage"
)

const (
	// shownLines and shownLine are how much of a failed step's output an error
	// repeats: its end says why.
	shownLines = 15
	shownLine  = 300
	// shownStep is how much of a step's command is told.
	shownStep = 120
)

var (
	stepPattern = regexp.MustCompile(`(?i)\ASTEP (\d+)/(\d+)\s?:`)
	// escapePattern is the colour that the builder gives to stderr.
	escapePattern = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
)

// buildLog reads what the engine says while it builds.
type buildLog struct {
	steps  []instruction
	report func(step int, says string)

	step    int // the current one, from 1
	lines   []string
	partial string // of a line that has not ended
	id      string
}

// read returns the id of the image when the build has ended. The engine answers
// 200 at once: a failure is only in the stream.
func (l *buildLog) read(r io.Reader) (string, error) {
	for messages := json.NewDecoder(r); ; {
		var m jsonmessage.JSONMessage
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("reading the progress of the build: %w", err)
		}
		if m.Error != nil {
			return "", l.failure(m.Error)
		}
		if m.Aux != nil {
			var result build.Result
			if json.Unmarshal(*m.Aux, &result) == nil && result.ID != "" {
				l.id = result.ID
			}
		}
		l.text(m.Stream)
	}
	if l.id == "" {
		// A connection that breaks between two messages looks like an end.
		return "", fmt.Errorf("the build's stream ended without an image: %w", io.ErrUnexpectedEOF)
	}
	return l.id, nil
}

// text takes a piece of output, which need not be a line.
func (l *buildLog) text(s string) {
	s = l.partial + s
	for {
		line, rest, ended := strings.Cut(s, "\n")
		if !ended {
			// Bounded, whatever a command writes without ending the line.
			l.partial = line[max(0, len(line)-shownLine):]
			return
		}
		l.line(line)
		s = rest
	}
}

func (l *buildLog) line(line string) {
	line = printable(line)
	if m := stepPattern.FindStringSubmatch(line); m != nil {
		l.step, _ = strconv.Atoi(m[1])
		l.lines = nil
		l.report(l.step, l.says())
		return
	}
	// The builder's own notes: ids of layers and containers.
	if strings.HasPrefix(line, " ---> ") || strings.HasPrefix(line, "Removing intermediate container") || line == "" {
		return
	}
	l.lines = append(l.lines, line)
	l.lines = l.lines[max(0, len(l.lines)-shownLines):]
}

// says is the current step in words. The engine adds steps of its own at the end.
func (l *buildLog) says() string {
	if l.step < 1 || l.step > len(l.steps) {
		return "finishing"
	}
	says, more, _ := strings.Cut(l.steps[l.step-1].says, "\n")
	if len(says) > shownStep || more != "" {
		says = strings.ToValidUTF8(says[:min(len(says), shownStep)], "") + "…"
	}
	return says
}

func (l *buildLog) failure(cause *jsonmessage.JSONError) error {
	if l.partial != "" {
		l.line(l.partial)
	}
	reason := printable(cause.Message)
	if cause.Code > 0 {
		reason = fmt.Sprintf("exit code %d", cause.Code)
	}
	if l.step == 0 {
		return errors.New(reason)
	}
	text := fmt.Sprintf("step %d of %d, %s: %s", l.step, len(l.steps), l.says(), reason)
	if len(l.lines) > 0 {
		text += "; its last lines:\n" + strings.Join(l.lines, "\n")
	}
	return errors.New(text)
}

// printable takes out colours and control characters, and what is too long.
func printable(line string) string {
	line = escapePattern.ReplaceAllString(strings.TrimRight(line, "\r\n"), "")
	// A progress bar overwrites its line: only what was seen last counts.
	line = line[strings.LastIndexByte(line, '\r')+1:]
	line = strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, line)
	if len(line) > shownLine {
		line = strings.ToValidUTF8(line[:shownLine], "") + "…"
	}
	return line
}
