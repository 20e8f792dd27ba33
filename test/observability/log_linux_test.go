package observability_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

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
