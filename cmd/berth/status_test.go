package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestProgressText(t *testing.T) {
	for _, test := range []struct {
		p    workspace.Progress
		want string
	}{
		{workspace.Progress{Text: "pulling python:3.12-slim"}, "pulling python:3.12-slim"},
		{workspace.Progress{Text: "pulling", Done: 3 << 20, Total: 40 << 20, Unit: "bytes"}, "pulling  3.0 MiB of 40.0 MiB"},
		{workspace.Progress{Text: "pulling", Done: 100, Unit: "bytes"}, "pulling  100 B"},
		{workspace.Progress{Text: "building", Done: 3, Total: 7, Unit: "steps"}, "building  3 of 7 steps"},
		{workspace.Progress{Text: "two\nlines \x1b[31m"}, `"two lines \x1b[31m"`},
		{workspace.Progress{}, ""},
	} {
		if got := progressText(test.p); got != test.want {
			t.Errorf("%+v: %q, want %q", test.p, got, test.want)
		}
	}
}

func TestTheStatusLineIsOneLineThatGoesAway(t *testing.T) {
	var out bytes.Buffer
	s := &statusLine{write: out.Write, width: func() int { return 12 }}
	s.clear()
	if out.Len() > 0 {
		t.Errorf("nothing was shown, and %q was written", out.String())
	}
	s.show("a text that is longer")
	s.show("too soon")
	if got, want := out.String(), eraseLine+"a text tha…"; got != want {
		t.Errorf("shown %q, want %q", got, want)
	}
	out.Reset()
	s.clear()
	s.clear()
	if got := out.String(); got != eraseLine {
		t.Errorf("cleared with %q", got)
	}
	out.Reset()
	s.show("next")
	if !strings.HasSuffix(out.String(), "next") {
		t.Errorf("after it was cleared: %q", out.String())
	}
	s.drawn = time.Now().Add(-time.Minute)
	s.show("later")
	if !strings.HasSuffix(out.String(), eraseLine+"later") {
		t.Errorf("later: %q", out.String())
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{{"äöü", 3, "äöü"}, {"äöüß", 3, "äö…"}, {"abc", 0, "abc"}, {"abc", -1, "abc"}, {"ab", 1, "…"}} {
		if got := cut(test.text, test.width); got != test.want {
			t.Errorf("cut(%q, %d) = %q, want %q", test.text, test.width, got, test.want)
		}
	}
}
