package sandboxd

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// stream is one output of a command, from its segments in the container to whoever
// reads it here.
type stream struct {
	letter string // of its segments
	mark   []byte // what follows it is not the command's
	change *sync.Cond

	// Guarded by change's lock.
	segment int // what was received up to
	offset  int64
	held    []byte // may be the beginning of the mark
	data    []byte // not read yet
	ended   bool   // the mark was found, or no more comes
}

func newStream(letter, mark string, change *sync.Cond) *stream {
	return &stream{letter: letter, mark: []byte(mark), change: change, segment: firstSegment}
}

// take takes what a segment holds from an offset on, as far as it is new. The lock
// must be held.
func (s *stream) take(segment int, offset int64, data []byte) error {
	switch {
	case segment < s.segment:
		return nil
	case segment > s.segment:
		if segment != s.segment+1 || offset != 0 {
			return fmt.Errorf("segment %d of stream %s at %d follows segment %d at %d", segment, s.letter, offset, s.segment, s.offset)
		}
		s.segment, s.offset = segment, 0
	}
	known := s.offset - offset
	if known < 0 {
		return fmt.Errorf("segment %d of stream %s begins at %d, it is known to %d", segment, s.letter, offset, s.offset)
	}
	if known >= int64(len(data)) {
		return nil
	}
	data = data[known:]
	s.offset += int64(len(data))
	s.pass(data)
	return nil
}

// pass hands data on up to the mark.
func (s *stream) pass(data []byte) {
	if s.ended {
		return
	}
	data = append(s.held, data...)
	s.held = nil
	if i := bytes.Index(data, s.mark); i >= 0 {
		s.data = append(s.data, data[:i]...)
		s.ended = true
		s.change.Broadcast()
		return
	}
	keep := 0
	for n := min(len(s.mark)-1, len(data)); n > 0; n-- {
		if bytes.HasPrefix(s.mark, data[len(data)-n:]) {
			keep = n
			break
		}
	}
	s.data = append(s.data, data[:len(data)-keep]...)
	s.held = bytes.Clone(data[len(data)-keep:])
	s.change.Broadcast()
}

// end is the end of what comes.
func (s *stream) end() {
	if !s.ended {
		s.data = append(s.data, s.held...)
		s.ended = true
	}
	s.held = nil
	s.change.Broadcast()
}

// Read waits for output. An end that is told by a mark is one too.
func (s *stream) Read(p []byte) (int, error) {
	s.change.L.Lock()
	defer s.change.L.Unlock()
	for len(s.data) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		s.change.Wait()
	}
	n := copy(p, s.data)
	if s.data = s.data[n:]; len(s.data) == 0 {
		s.data = nil
		s.change.Broadcast()
	}
	return n, nil
}

// told is what our scripts say: the segments of output, remarks, and the last word.
type told struct {
	parts   []part
	remarks []string
	word    string // after =, empty if it is missing
}

// part is a piece of one stream.
type part struct {
	letter  string
	segment int
	offset  int64
	data    []byte
}

func (t told) says(remark string) (rest string, ok bool) {
	for _, r := range t.remarks {
		if first, rest, _ := strings.Cut(r, " "); first == remark {
			return rest, true
		}
	}
	return "", false
}

var errScript = errors.New("the scripts in the session say what they do not say: is /bin/sh still its own?")

// parse reads what a script wrote. One that was ended in the middle of its words is
// not wrong: what is complete counts. One whose beginning is missing has said nothing
// that can be relied on.
func (f facts) parse(text string) (told, error) {
	var t told
	text, ok := strings.CutPrefix(text, head)
	if !ok {
		return t, nil
	}
	var current *part
	var encoded strings.Builder
	finish := func() error {
		if current == nil {
			return nil
		}
		data, err := f.decode(encoded.String())
		encoded.Reset()
		if err != nil {
			return fmt.Errorf("%w (%w)", errScript, err)
		}
		current.data = data
		t.parts = append(t.parts, *current)
		current = nil
		return nil
	}
	for line := range strings.Lines(text) {
		line, complete := strings.CutSuffix(line, "\n")
		switch {
		case !complete:
			return t, nil
		case strings.HasPrefix(line, "@"):
			if err := finish(); err != nil {
				return t, err
			}
			p, err := parsePart(line[1:])
			if err != nil {
				return t, err
			}
			current = &p
		case strings.HasPrefix(line, "!"):
			if err := finish(); err != nil {
				return t, err
			}
			t.remarks = append(t.remarks, line[1:])
		case strings.HasPrefix(line, "="):
			if err := finish(); err != nil {
				return t, err
			}
			t.word = line[1:]
		case current != nil:
			encoded.WriteString(line)
		}
	}
	return t, nil
}

// parsePart reads STREAM.SEGMENT[+OFFSET].
func parsePart(s string) (part, error) {
	name, offset, _ := strings.Cut(s, "+")
	letter, number, _ := strings.Cut(name, ".")
	p := part{letter: letter}
	var err error
	if p.segment, err = strconv.Atoi(number); err == nil && offset != "" {
		p.offset, err = strconv.ParseInt(offset, 10, 64)
	}
	if err != nil || letter != "o" && letter != "e" || p.segment < firstSegment || p.offset < 0 {
		return p, fmt.Errorf("%w (a part named %.40q)", errScript, s)
	}
	return p, nil
}

// decode reads what the container's base64 or od wrote.
func (f facts) decode(text string) ([]byte, error) {
	if f.base64 {
		return base64.StdEncoding.DecodeString(text)
	}
	return hex.DecodeString(strings.ReplaceAll(text, " ", ""))
}
