package swap

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// buffer is a log that may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestALeavingPluginHearsOfItsLevel: what is looked for may be in the very call that
// it still has.
func TestALeavingPluginHearsOfItsLevel(t *testing.T) {
	var log buffer
	b := newBed(t, plain, func(c *host.Config, _ *host.Provider) {
		c.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: &log, IndependentLevels: true})
	})
	if err := os.Mkdir(gatesOf(b.root), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(gatesOf(b.root)) })
	token := workspace.NewToken()
	gate := filepath.Join(gatesOf(b.root), token)
	ws := b.workspace(t, workspace.WithToken(token))
	made := make(chan error, 1)
	go func() { made <- ws.MkdirAll(t.Context(), "d") }()
	poll(t, "a create to be under way", func() bool { return exists(gate + ".begun") })
	b.swap(t, versionB)
	if st := b.status(); st.Leaving != 1 {
		t.Fatalf("%+v", st)
	}
	if err := b.SetLogLevel(plain, hclog.Trace); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(gate+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
	b.alone(t) // the old one is gone, and its log with it
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "let through") && strings.Contains(line, "version=a") {
			return
		}
	}
	t.Errorf("it has not told what it did: %s", log.String())
}
