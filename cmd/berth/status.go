package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/cmd/berth/internal/units"
	"github.com/berth-dev/berth/shared/workspace"
)

// statusLine is one line at the end of a terminal that says what is being waited
// for. It is gone before anything else is written there.
type statusLine struct {
	write func([]byte) (int, error)
	width func() int

	mu    sync.Mutex
	shown bool
	drawn time.Time
}

// eraseLine goes to the line's beginning and erases it.
const eraseLine = "\r\x1b[K"

// show draws text in place of what stands there. What comes too soon after the
// last one is left out. A line that cannot be drawn is no reason to stop.
func (s *statusLine) show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.drawn) < progressInterval {
		return
	}
	s.shown, s.drawn = true, time.Now()
	_, _ = s.write([]byte(eraseLine + cut(text, s.width()-1)))
}

// clear takes the line away.
func (s *statusLine) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown {
		s.shown, s.drawn = false, time.Time{}
		_, _ = s.write([]byte(eraseLine))
	}
}

// cut keeps what fits: a line that wraps cannot be erased.
func cut(text string, width int) string {
	if runes := []rune(text); width > 0 && len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

// watchOpening has what the opening of a workspace does shown, if a person may be
// waiting there; with -v the log tells it.
func (a *app) watchOpening() []workspace.Option {
	if a.verbose || !a.stderr.isTerminal() {
		return nil
	}
	if a.status == nil {
		a.status = &statusLine{write: a.stderr.write, width: func() int {
			width, _, err := term.GetSize(int(a.stderr.file.Fd()))
			if err != nil {
				return 0
			}
			return width
		}}
		a.stdout.before, a.stderr.before = a.status.clear, a.status.clear
	}
	return []workspace.Option{workspace.WithProgress(func(p workspace.Progress) { a.status.show(progressText(p)) })}
}

// opened opens a workspace before a command that may be silent for long: what is
// shown of the opening must not outlast it.
func (a *app) opened(ctx context.Context, ws workspace.Workspace) error {
	_, err := ws.WorkingDir(ctx)
	a.clearStatus()
	return err
}

func (a *app) clearStatus() {
	if a.status != nil {
		a.status.clear()
	}
}

// progressText is a Progress on one line.
func progressText(p workspace.Progress) string {
	text := strings.Join(strings.Fields(p.Text), " ")
	if text != "" {
		text = display.Name(text)
	}
	amount := func(n int64) string {
		if p.Unit == "bytes" {
			return units.FormatSize(n)
		}
		return strconv.FormatInt(n, 10)
	}
	switch {
	case p.Total > 0:
		text += fmt.Sprintf("  %s of %s", amount(p.Done), amount(p.Total))
	case p.Done > 0:
		text += "  " + amount(p.Done)
	default:
		return text
	}
	if p.Unit != "" && p.Unit != "bytes" {
		text += " " + display.Name(p.Unit)
	}
	return text
}
