// Package hosttest helps programs that embed a host to test themselves. [Fake]
// is a host whose commands are scripted and whose files are kept in memory;
// [New] makes a real host that serves providers in the test's own process.
package hosttest

import (
	"testing"

	"github.com/berth-dev/berth/host"
)

// Registrar serves a provider, as sdk.Plugin does.
type Registrar = host.Registrar

// New makes a host whose providers are served in this process, over the same
// protocol as plugin processes. It is closed when the test ends. For a provider
// with a configuration, or a logger, call [host.New] with [host.Provider]'s
// InProcess.
func New(t testing.TB, providers map[string]Registrar) *host.Host {
	t.Helper()
	config := host.Config{Providers: make(map[string]host.Provider, len(providers)), DataDir: t.TempDir()}
	for name, registrar := range providers {
		config.Providers[name] = host.Provider{InProcess: registrar}
	}
	h, err := host.New(config)
	if err != nil {
		t.Fatalf("making the host: %v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing the host: %v", err)
		}
	})
	return h
}
