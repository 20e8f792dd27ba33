package host

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { value, ok := vars[name]; return value, ok }
}

func TestParseConfig(t *testing.T) {
	const text = `
# a comment
plugin_dirs: [./bin, /opt/berth]
data_dir: data
watch_plugins: true
providers:
  docker:    {config: {image: "python:3.12-slim", network_mode: none, cpus: 1.5, memory: 512, init: true, "a.b": 1, a: {b: 2}, tags: [a, 2, null]}}
  build:
    plugin: docker
    start_timeout: 20s
    drain_limit: 5m
    idle_timeout: 1h30m
    budget: {memory: "${MEMORY:-256MiB}", memory_soft: 200MiB, cpu: 0.5, restarts: 5, restart_window: 10m}
    conventional_env: false
    inherit_env: [KUBECONFIG, "${EXTRA:-OTHER}"]
    config:
      image: ${IMAGE}
      env: {TOKEN: "x${SECRET}y$${SECRET}"}
      script: |
        one
        two
  local:
  wild: {budget: {cpu: 2, restarts: unlimited}}
`
	yes := false
	config, err := parseConfig("berth.yaml", "/etc/berth", []byte(text), lookup(map[string]string{"IMAGE": "golang:1.26", "SECRET": "${IMAGE}"}))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range config.Providers {
		p.source = nil
		config.Providers[name] = p
	}
	want := Config{
		PluginDirs: []string{"/etc/berth/bin", "/opt/berth"}, Dir: "/etc/berth", DataDir: "/etc/berth/data",
		WatchPlugins: true, watchSaid: true,
		Providers: map[string]Provider{
			"docker": {Config: map[string]any{
				"image": "python:3.12-slim", "network_mode": "none", "cpus": 1.5, "memory": uint64(512), "init": true, "a.b": uint64(1), "a": map[string]any{"b": uint64(2)}, "tags": []any{"a", uint64(2), nil},
			}},
			"build": {
				Plugin: "docker", StartTimeout: 20 * time.Second, DrainLimit: 5 * time.Minute, IdleTimeout: 90 * time.Minute, ConventionalEnv: &yes, InheritEnv: []string{"KUBECONFIG", "OTHER"},
				Budget: Budget{Memory: 256 << 20, MemorySoft: 200 << 20, CPU: 0.5, Restarts: 5, RestartWindow: 10 * time.Minute},
				Config: map[string]any{"image": "golang:1.26", "env": map[string]any{"TOKEN": "x${IMAGE}y${SECRET}"}, "script": "one\ntwo\n"},
			},
			"local": {},
			"wild":  {Budget: Budget{CPU: 2, Restarts: UnlimitedRestarts}},
		},
	}
	if !reflect.DeepEqual(config, want) {
		t.Errorf("got  %#v\nwant %#v", config, want)
	}
	empty, err := parseConfig("berth.yaml", "/", nil, lookup(nil))
	if err != nil || len(empty.Providers) != 0 {
		t.Errorf("an empty file: %+v, %v", empty, err)
	}
}

// TestParseConfigSaysWhatIsWrong: file, line, key, reason and what would be
// right, and never a value.
func TestParseConfigSaysWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		text, key string
		line      int
		want      string
	}{
		"unknown key":         {"plugin_dir: [x]", "plugin_dir", 1, "did you mean plugin_dirs?"},
		"unknown nested key":  {"providers:\n  docker:\n    confg: {}", "providers.docker.confg", 3, "did you mean config?"},
		"swapped letters":     {"providers:\n  docker: {plguin: x}", "providers.docker.plguin", 2, "did you mean plugin?"},
		"quite another key":   {"zzz: 1", "zzz", 1, "there are admin_socket, allow_writable_plugins, cache_dir, data_dir, gateway, plugin_dirs, providers, watch_plugins"},
		"duplicate key":       {"providers:\n  a: {}\n  b: {}\n  a: {}", "providers.a", 4, "first at line 2"},
		"duplicate in config": {"providers:\n  a:\n    config:\n      x: s3cret\n      x: s3cret", "providers.a.config.x", 5, "twice"},
		"a list of providers": {"providers: [a]", "providers", 1, "want a mapping, not a list"},
		"a string of dirs":    {"plugin_dirs: s3cret", "plugin_dirs", 1, "want a list of strings, not a string"},
		"a number in dirs":    {"plugin_dirs: [1]", "plugin_dirs.0", 1, "want a string, not a number"},
		"a provider's name":   {"providers:\n  Docker: {}", "providers.Docker", 2, "want 1 to 63 of a-z"},
		"a plugin's name":     {"providers:\n  a: {plugin: ../x}", "providers.a.plugin", 2, "want 1 to 63 of a-z"},
		"config as string":    {"providers:\n  a: {config: s3cret}", "providers.a.config", 2, "want a mapping, not a string"},
		"yes for a boolean":   {"providers:\n  a: {conventional_env: yes}", "providers.a.conventional_env", 2, "want true or false"},
		"a bare number":       {"providers:\n  a: {start_timeout: 30}", "providers.a.start_timeout", 2, "with its unit"},
		"a negative limit":    {"providers:\n  a: {drain_limit: -3s}", "providers.a.drain_limit", 2, "above zero"},
		"a limit of zero":     {"providers:\n  a:\n    drain_limit: 0s", "providers.a.drain_limit", 3, "above zero"},
		"a bare idle time":    {"providers:\n  a:\n    plugin: b\n    idle_timeout: 15", "providers.a.idle_timeout", 4, "with its unit"},
		"watched a bit":       {"providers:\n  a: {}\nwatch_plugins: sometimes", "watch_plugins", 3, "want true or false"},
		"watched by word":     {"watch_plugins: 'true'", "watch_plugins", 1, "want true or false"},
		"watching misspelt":   {"watch_plugin: true", "watch_plugin", 1, "did you mean watch_plugins?"},
		"a negative timeout":  {"providers:\n  a: {start_timeout: -3s}", "providers.a.start_timeout", 2, "above zero"},
		"a value inherited":   {"providers:\n  a: {inherit_env: ['A=s3cret']}", "providers.a.inherit_env", 2, "without values"},
		"a pattern inherited": {"providers:\n  a: {inherit_env: ['AWS_*']}", "providers.a.inherit_env", 2, "exact names"},
		"unset variable":      {"providers:\n  a:\n    config:\n      key: s3cret${NOPE}", "providers.a.config.key", 4, "NOPE is not set"},
		"unclosed variable":   {"providers:\n  a:\n    config:\n      key: s3cret${NOPE", "providers.a.config.key", 4, "without its }"},
		"no variable's name":  {"providers:\n  a:\n    config:\n      key: ${s3 cret}", "providers.a.config.key", 4, "does not hold a variable's name"},
		"an anchor":           {"providers:\n  a: &x {}\n  b: *x", "providers.a", 2, "not an anchor"},
		"a tag":               {"providers:\n  a: {config: {x: !!binary s3cret}}", "providers.a.config.x", 2, "not a tag"},
		"infinity":            {"providers:\n  a: {config: {x: .inf}}", "providers.a.config.x", 2, "want"},
		"a number as key":     {"providers:\n  a: {config: {1: x}}", "providers.a.config", 2, "quote it"},
		"two documents":       {"providers: {}\n---\nproviders: {}", "", 3, "second document"},
		"no YAML":             {"providers:\n  a: {config: {x: \"s3cret}}", "", 2, "not YAML"},
		"a tab":               {"providers:\n\ta: s3cret", "", 2, "not YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig("berth.yaml", "/", []byte(test.text), lookup(nil))
			var config *ConfigError
			if !errors.As(err, &config) || !errors.Is(err, workspace.ErrInvalid) {
				t.Fatalf("%v", err)
			}
			if config.File != "berth.yaml" || config.Line != test.line || config.Key != test.key || !strings.Contains(config.Reason, test.want) {
				t.Errorf("%v\nwant line %d, key %q, %q", err, test.line, test.key, test.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("repeats a value: %v", err)
			}
		})
	}
}

func TestLoadConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "berth.yaml")
	t.Setenv("BERTH_TEST_DIR", "plugins")
	if err := os.WriteFile(path, []byte("plugin_dirs: ['./${BERTH_TEST_DIR}', '~/x']\nproviders: {notes: {plugin: state}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	if config.Dir != dir || config.PluginDirs[0] != filepath.Join(dir, "plugins") || config.PluginDirs[1] != filepath.Join(home, "x") || config.Providers["notes"].Plugin != "state" {
		t.Errorf("%+v", config)
	}
	if _, err := LoadConfig(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, make([]byte, maxConfigFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(path); !errors.Is(err, workspace.ErrInvalid) {
		t.Error(err)
	}
}

func TestDefaultConfigHasEveryPluginThatIsFound(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BERTH_PLUGIN_PATH", dir)
	if err := os.WriteFile(filepath.Join(dir, "berth-provider-acme"), []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	config, err := DefaultConfig()
	if err != nil || config.Providers["acme"].Plugin != "acme" {
		t.Errorf("%+v, %v", config, err)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{
		"", "providers: {a: {config: {x: ${A:-b}}}}", "plugin_dirs: [a, b]\nproviders:\n  a: &x\n  b: *x", "a: |\n  b\n", "? a\n: b", "- - - a", "{{{{", "\"\\x\"", "%TAG ! x", "a: !!str 1", "<<: {a: b}", "\x00", "a:\n\t- b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		config, err := parseConfig("f", "/", []byte(text), lookup(map[string]string{"A": "a"}))
		if err != nil {
			var fault *ConfigError
			if !errors.As(err, &fault) {
				t.Errorf("%q: %T %v", text, err, err)
			}
			return
		}
		for name, p := range config.Providers {
			if workspace.ValidateName(name) != nil {
				t.Errorf("%q: a provider named %q", text, name)
			}
			if _, err := toJSON(p.Config); err != nil && !errors.Is(err, workspace.ErrInvalid) {
				t.Errorf("%q: a configuration that is no JSON: %v", text, err)
			}
		}
	})
}

func TestWatchPluginsIsOnWhereNobodySays(t *testing.T) {
	for text, want := range map[string][2]bool{ // by what is so where nothing is said
		"providers: {}":        {false, true},
		"watch_plugins: true":  {true, true},
		"watch_plugins: false": {false, false},
	} {
		config, err := parseConfig("berth.yaml", "/", []byte(text), lookup(nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{config.WatchPluginsOr(false), config.WatchPluginsOr(true)}; got != want {
			t.Errorf("%s: %v, not %v", text, got, want)
		}
	}
	if c := (Config{WatchPlugins: true}); !c.WatchPluginsOr(false) {
		t.Error("a program that says so is not heard")
	}
}
