package observability_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// patience is for what must come: only a test that fails waits for so long.
const patience = 30 * time.Second

func waitFor(t *testing.T, there func() bool, what func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !there(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what())
		}
	}
}

// lines is a log that is kept.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write takes a record.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits for a text.
func (l *lines) await(t *testing.T, text string) {
	t.Helper()
	waitFor(t, func() bool { return strings.Contains(l.String(), text) }, func() string { return "no " + text + " in the log:\n" + l.String() })
}

func (l *lines) logger(level hclog.Level) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: level, Output: l, IndependentLevels: true})
}

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}
