package main

import (
	"io"
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
	// progressWidth is the bar's, in columns: with the figures beside it, it fits
	// the narrowest terminals that are used.
	progressWidth = 20
	// unknownSize is a copy whose end is not known before.
	unknownSize = -1
)

// progress shows how far a copy is, on stderr if that is a terminal. The zero
// value shows nothing.
type progress struct {
	out io.Writer

	mu          sync.Mutex
	bar         *progressbar.ProgressBar // nil before begin
	done, total int64
}

func (a *app) newProgress(quiet bool) *progress {
	if quiet || a.verbose || !a.stderr.isTerminal() {
		return &progress{}
	}
	return &progress{out: &lateWriter{w: a.stderr, from: time.Now().Add(progressDelay)}}
}

// begin tells how many bytes there will be.
func (p *progress) begin(total int64) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.out),
		progressbar.OptionSetWidth(progressWidth),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowTotalBytes(true),
		progressbar.OptionShowCount(),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionThrottle(progressInterval),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionClearOnFinish(),
		// With an interval it draws by itself, also after the end.
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
}

// Write counts what passes by.
func (p *progress) Write(data []byte) (int, error) {
	p.add(len(data))
	return len(data), nil
}

func (p *progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(n)
	// A bar that cannot be drawn is no reason to stop a copy, and a file that
	// has grown since it was counted none to draw beyond the end.
	if p.bar != nil && (p.total == unknownSize || p.done <= p.total) {
		_ = p.bar.Set64(p.done)
	}
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

// lateWriter drops what is written before its time.
type lateWriter struct {
	w    io.Writer
	from time.Time
}

func (l *lateWriter) Write(p []byte) (int, error) {
	if time.Now().Before(l.from) {
		return len(p), nil
	}
	return l.w.Write(p)
}
