package process

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// pumpRecords and pumpBytes bound what waits for a slow logger. What comes
	// on top is dropped and counted: the plugin never waits for the log.
	pumpRecords = 1024
	pumpBytes   = 4 << 20
	// tailLines and tailLine bound the last lines that errors carry.
	tailLines = 20
	tailLine  = 2 << 10
	// logFlush is how long the end of a plugin waits for a logger that is slow.
	// One that blocks for ever must not keep the host from ending.
	logFlush = 500 * time.Millisecond
)

// pump brings a plugin's output to a logger. Its readers never wait: a
// goroutine of its own calls the logger.
type pump struct {
	logger  hclog.Logger
	redact  func(string) string
	dropped atomic.Uint64
	done    chan struct{} // closed when the logger has everything

	mu     sync.Mutex
	queue  chan record
	queued int // bytes
	closed bool
	tail   []string
}

func newPump(logger hclog.Logger, redact func(string) string) *pump {
	if redact == nil {
		redact = func(s string) string { return s }
	}
	p := &pump{logger: logger, redact: redact, queue: make(chan record, pumpRecords), done: make(chan struct{})}
	go p.run()
	return p
}

// stderr returns a writer for what the plugin writes there.
func (p *pump) stderr() *lines {
	return &lines{emit: func(line []byte, cut int) {
		// First of all, so that no later step meets a secret.
		line = []byte(p.redact(string(line)))
		rec := parseLine(line, cut)
		p.remember(rec, line, cut)
		p.put(rec)
	}}
}

// stdout returns a writer for what the plugin prints, which nobody asked for.
func (p *pump) stdout() *lines {
	return &lines{emit: func(line []byte, cut int) {
		rec := record{level: hclog.Debug, message: printable(p.redact(string(line))), args: []any{"stream", "stdout"}, size: len(line)}
		if cut > 0 {
			rec.args = append(rec.args, "truncated", true, "bytes_missing", cut)
		}
		p.put(rec)
	}}
}

func (p *pump) put(rec record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.queued+rec.size > pumpBytes {
		p.dropped.Add(1)
		return
	}
	select {
	case p.queue <- rec:
		p.queued += rec.size
	default:
		p.dropped.Add(1)
	}
}

func (p *pump) run() {
	defer close(p.done)
	var told uint64
	var pace pace
	for rec := range p.queue {
		p.mu.Lock()
		p.queued -= rec.size
		p.mu.Unlock()
		if n := p.dropped.Load(); n > told {
			p.logger.Warn("plugin log records dropped: the logger is slower than the plugin writes", "dropped", n-told, "dropped_in_all", n)
			told = n
		}
		pace.spend(func() { p.logger.Log(rec.level, rec.message, rec.args...) })
	}
}

// close takes no more records and waits for the logger, but not for ever.
func (p *pump) close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.queue)
	}
	p.mu.Unlock()
	select {
	case <-p.done:
	case <-time.After(logFlush):
	}
}

// remember keeps the last lines, as people read them: a record of hclog without
// its JSON, anything else as it is.
func (p *pump) remember(rec record, line []byte, cut int) {
	last := string(line)
	if rec.json {
		last = rec.String()
	}
	if over := len(last) - tailLine; over > 0 {
		last = fmt.Sprintf("%s … (%d bytes cut)", last[:tailLine], over+cut)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.tail) == tailLines {
		p.tail = append(p.tail[:0], p.tail[1:]...)
	}
	p.tail = append(p.tail, last)
}

// last returns the last lines of stderr.
func (p *pump) last() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.tail...)
}
