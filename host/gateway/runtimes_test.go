//go:build unix

package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// What a runtime overrides wrongly is told with where it stands, before anything is
// opened.
func TestCheckRuntimes(t *testing.T) {
	for _, test := range []struct{ name, config, key, reason string }{
		{"right", "{env: {A: b}, refuse: invalid}", "", ""},
		{"none", "{}", "", ""},
		{"an unknown key", "{env: {A: b},\n      nonsense: 1}", "berth.yaml:5: gateway.runtimes.a.config.nonsense: ", "env"},
		{"of the provider alone", "{root: /tmp}", "berth.yaml:4: gateway.runtimes.a.config.root: ", "cannot be set for one workspace"},
		{"of another type", "{refuse:\n      [x]}", "berth.yaml:5: gateway.runtimes.a.config.refuse: ", "string"},
		{"a variable of another type", "{env: {A: {}}}", "gateway: runtime a: ", "env.A"},
	} {
		path := filepath.Join(t.TempDir(), "berth.yaml")
		if err := os.WriteFile(path, []byte("providers: {folder: {}}\ngateway:\n  runtimes:\n    a: {provider: folder, config: "+test.config+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := host.LoadConfig(path)
		if err != nil {
			t.Fatal(err)
		}
		config, err := LoadConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		tg := newTestGateway(t, func(c *Config) { c.Runtimes, c.DefaultRuntime = config.Runtimes, "a" })
		switch err := tg.CheckRuntimes(t.Context()); {
		case test.reason == "":
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		case err == nil || !strings.Contains(err.Error(), test.key) || !strings.Contains(err.Error(), test.reason) || !errors.Is(err, workspace.ErrInvalid):
			t.Errorf("%s: %v\nwant %s… %s", test.name, err, test.key, test.reason)
		}
	}
}

// A plugin that does not start is no reason for a gateway not to.
func TestCheckRuntimesOfAPluginThatDoesNotStart(t *testing.T) {
	h, err := host.New(host.Config{DataDir: t.TempDir(), Providers: map[string]host.Provider{"absent": {Plugin: "absent"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	log := &saidLog{}
	tg := newTestGateway(t, func(c *Config) {
		c.Host, c.Logger = h, hclog.New(&hclog.LoggerOptions{Output: log})
		c.Runtimes, c.DefaultRuntime = map[string]Runtime{"a": {Provider: "absent", Config: map[string]any{"x": 1}}}, "a"
	})
	if err := tg.CheckRuntimes(t.Context()); err != nil {
		t.Error(err)
	}
	if log.count("could not be checked") != 1 {
		t.Errorf("the log says %q", log.text.String())
	}
}
