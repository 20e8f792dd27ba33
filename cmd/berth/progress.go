package main

import (
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

const (
	// progressDelay is how long a copy goes on before it is a long one, and gets
	// a bar.
	progressDelay = time.Second
	// progressInterval is how often the bar is drawn at most.
	progressInterval = 100 * time.Millisecond
	// unknownSize is a copy whose end is not known before.
	unknownSize = -1
)

// progress shows how far a copy is, on stderr if that is a terminal. The zero
// value shows nothing.
type progress struct {
	app *app

	mu    sync.Mutex
	total int64
	done  int64
	start time.Time
	bar   *progressbar.ProgressBar // nil before progressDelay
}

func (a *app) newProgress(quiet bool) *progress {
	if quiet || !a.stderr.isTerminal() || a.verbose {
		return &progress{}
	}
	return &progress{app: a, start: time.Now()}
}

// begin tells how many bytes there will be.
func (p *progress) begin(total int64) { p.total = total }

// Write counts what passes by.
func (p *progress) Write(data []byte) (int, error) {
	p.add(len(data))
	return len(data), nil
}

func (p *progress) add(n int) {
	if p.app == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(n)
	if p.bar == nil {
		if time.Since(p.start) < progressDelay {
			return
		}
		p.bar = progressbar.NewOptions64(p.total,
			progressbar.OptionSetWriter(p.app.stderr),
			progressbar.OptionShowBytes(true),
			progressbar.OptionShowTotalBytes(true),
			progressbar.OptionUseIECUnits(true),
			progressbar.OptionThrottle(progressInterval),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth(),
			progressbar.OptionClearOnFinish(),
		)
	}
	// A bar that cannot be drawn is no reason to stop a copy. Its own maximum
	// is one, and a file may have grown since it was counted.
	if p.total != unknownSize && p.done > p.total {
		return
	}
	_ = p.bar.Set64(p.done)
}

// end takes the bar away, so that what is said next stands alone.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}
