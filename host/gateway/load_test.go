package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
)

// load reads a configuration of two providers and a gateway's section.
func load(t *testing.T, section string) (Config, string, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "berth.yaml")
	text := "providers: {docker: {}, local: {}}\n" + section
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := host.LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	config, err := LoadConfig(file)
	return config, dir, err
}

func TestLoadConfig(t *testing.T) {
	t.Setenv("BERTH_TEST_TOKEN", "s3cret")
	config, dir, err := load(t, `
gateway:
  listen: unix:./berth.sock
  token: "${BERTH_TEST_TOKEN}"
  store: sqlite:./sessions.db
  tls: {cert: c.pem, key: /etc/k.pem}
  default_runtime: python
  runtimes:
    python: {provider: docker, config: {image: "python:3.12-slim", env: {A: b}}, description: Python}
    local:
  max_sessions: 5
  max_open_sessions: 0
  max_sessions_per_tenant: 2
  execute_timeout: 10m
  max_read_bytes: 1000
  evict_idle_after: 0
  idle_timeout: 3600
  workspace_ttl: 168h
  container_ttl: 60
  drain_timeout: 5s
`)
	if err != nil {
		t.Fatal(err)
	}
	five, none, two := 5, 0, 2
	want := Config{
		Listen: "unix:" + filepath.Join(dir, "berth.sock"), Token: "s3cret", Store: "sqlite:" + filepath.Join(dir, "sessions.db"),
		TLS: &TLS{Cert: filepath.Join(dir, "c.pem"), Key: "/etc/k.pem"}, DefaultRuntime: "python", DrainTimeout: 5 * time.Second,
		Runtimes: map[string]Runtime{
			"python": {Provider: "docker", Description: "Python", Config: map[string]any{"image": "python:3.12-slim", "env": map[string]any{"A": "b"}}},
			"local":  {Provider: "local"},
		},
		Policy: Policy{
			MaxSessions: &five, MaxOpenSessions: &none, MaxSessionsPerTenant: &two, ExecuteTimeout: 10 * time.Minute, MaxReadBytes: 1000,
			EvictIdleAfter: -1, IdleTimeout: time.Hour, WorkspaceTTL: 7 * 24 * time.Hour, ContainerTTL: time.Minute,
		},
	}
	for alias, runtime := range config.Runtimes {
		if alias == "python" && !runtime.section.Exists() {
			t.Error("where a runtime's configuration stands is not known")
		}
		runtime.section = host.Section{}
		config.Runtimes[alias] = runtime
	}
	if !reflect.DeepEqual(config, want) {
		t.Errorf("%+v\nwant %+v", config, want)
	}
	config.Host = newFolderHost(t, t.TempDir())
	if err := config.complete(); err != nil {
		t.Error(err)
	}
}

// What the documentation shows is what is read.
func TestLoadConfigOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "gateway.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BERTH_TOKEN", "s3cret")
	file, err := host.LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	config, err := LoadConfig(file)
	if err != nil || len(config.Runtimes) != 2 || config.Policy.EvictIdleAfter != 15*time.Minute {
		t.Errorf("%+v, %v", config, err)
	}
	for _, key := range append(slices.Clone(policyKeys), "listen", "token", "store", "tls", "default_runtime", "drain_timeout") {
		if !strings.Contains(string(page), "| `"+key+"` |") {
			t.Errorf("%s is not described", key)
		}
	}
}

func TestLoadConfigWithoutASectionServesEveryProvider(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", filepath.Join(t.TempDir(), "data"))
	for _, section := range []string{"", "gateway:\n"} {
		config, _, err := load(t, section)
		want := map[string]Runtime{"docker": {Provider: "docker"}, "local": {Provider: "local"}}
		if err != nil || !reflect.DeepEqual(config.Runtimes, want) || config.Token != "" {
			t.Errorf("%+v, %v", config, err)
		}
		if !strings.HasPrefix(config.Store, "sqlite:"+os.Getenv("XDG_DATA_HOME")) {
			t.Errorf("the store is %s", config.Store)
		}
	}
}

func TestLoadConfigDefaultsToTheFirstRuntime(t *testing.T) {
	config, _, err := load(t, "gateway:\n  runtimes: {z: {provider: local}, a: {provider: docker}}\n")
	if err != nil || config.DefaultRuntime != "z" {
		t.Errorf("%q, %v", config.DefaultRuntime, err)
	}
}

func TestLoadConfigTellsWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		text, key string // the section's one line, and the key that is wrong
		want      string
	}{
		"an unknown key":           {"tokn: s3cret", "gateway.tokn", "did you mean token?"},
		"no mapping":               {"[s3cret]", "gateway", "want a mapping"},
		"a token that is none":     {`token: "s3 cret"`, "gateway.token", "no header can"},
		"an empty token":           {`token: ""`, "gateway.token", "is empty"},
		"an unset variable":        {"token: ${NOPE_S3}", "gateway.token", "NOPE_S3 is not set"},
		"a number for a token":     {"token: 12345", "gateway.token", "want a string"},
		"no port":                  {"listen: s3cret", "gateway.listen", "want HOST:PORT"},
		"a store of nowhere":       {"store: mysql://s3cret", "gateway.store", "want sqlite:PATH"},
		"a store without a path":   {"store: 'sqlite:'", "gateway.store", "want sqlite:PATH"},
		"half of TLS":              {"tls: {cert: s3cret}", "gateway.tls", "want both"},
		"an unknown key of TLS":    {"tls: {cert: c, certs: s3cret}", "gateway.tls.certs", "did you mean cert?"},
		"an empty default":         {"default_runtime: ''", "gateway.default_runtime", "there are docker, local"},
		"a default that is none":   {"default_runtime: s3cret", "gateway.default_runtime", "there are docker, local"},
		"no runtimes":              {"runtimes: {}", "gateway.runtimes", "is empty"},
		"a strange alias":          {"runtimes: {'a b': {provider: local}}", "gateway.runtimes.a b", "not named as an alias"},
		"an unknown provider":      {"runtimes: {a: {provider: s3cret}}", "gateway.runtimes.a.provider", "there are docker, local"},
		"an alias that is none":    {"runtimes: {a: {}}", "gateway.runtimes.a", "names no provider"},
		"a runtime's unknown key":  {"runtimes: {local: {image: s3cret}}", "gateway.runtimes.local.image", "there are config, description, provider"},
		"a runtime's odd config":   {"runtimes: {local: {config: s3cret}}", "gateway.runtimes.local.config", "want a mapping"},
		"a text for a ceiling":     {"max_sessions: s3cret", "gateway.max_sessions", "want a whole number"},
		"a ceiling beyond bounds":  {"max_sessions: 99999999999", "gateway.max_sessions", "want at most"},
		"a negative lifetime":      {"idle_timeout: -5", "gateway.idle_timeout", "want a whole number"},
		"no time to execute":       {"execute_timeout: 0", "gateway.execute_timeout", "at least a second"},
		"nothing to read":          {"max_read_bytes: 0", "gateway.max_read_bytes", "more than zero"},
		"no time to drain":         {"drain_timeout: 0", "gateway.drain_timeout", "more than zero"},
		"a duration without units": {"drain_timeout: 5 s3cret", "gateway.drain_timeout", "want a number of seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			section := "gateway:\n  " + test.text + "\n"
			line := 3
			if strings.HasPrefix(test.text, "[") {
				section, line = "gateway: "+test.text+"\n", 2
			}
			_, _, err := load(t, section)
			var fault *host.ConfigError
			if !errors.As(err, &fault) {
				t.Fatalf("%v", err)
			}
			if fault.Line != line || fault.Key != test.key || !strings.Contains(fault.Reason, test.want) {
				t.Errorf("%v\nwant line %d, key %q, %q", err, line, test.key, test.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("repeats a value: %v", err)
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	h := newFolderHost(t, t.TempDir())
	negative := -1
	for name, change := range map[string]func(*Config){
		"no host":             func(c *Config) { c.Host = nil },
		"no token":            func(c *Config) { c.Token = "" },
		"a token not ASCII":   func(c *Config) { c.Token = "tökn" },
		"no store":            func(c *Config) { c.Store = "" },
		"no runtimes":         func(c *Config) { c.Runtimes = nil },
		"a strange alias":     func(c *Config) { c.Runtimes = map[string]Runtime{"": {}} },
		"an unknown default":  func(c *Config) { c.DefaultRuntime = "nope" },
		"no port":             func(c *Config) { c.Listen = "here" },
		"a negative ceiling":  func(c *Config) { c.Policy.MaxSessions = &negative },
		"a negative timeout":  func(c *Config) { c.Policy.ExecuteTimeout = -1 },
		"a negative size":     func(c *Config) { c.Policy.MaxReadBytes = -1 },
		"an empty unix path":  func(c *Config) { c.Listen = "unix:" },
		"an unfinished store": func(c *Config) { c.Store = "postgres://" },
	} {
		config := Config{Host: h, Token: serviceToken, Store: "sqlite:x", Runtimes: map[string]Runtime{"folder": {}}}
		if err := config.complete(); err != nil {
			t.Fatal(err)
		}
		if config.DefaultRuntime != "folder" || config.Runtimes["folder"].Provider != "folder" || config.Listen != DefaultListen {
			t.Errorf("%+v", config)
		}
		change(&config)
		if err := config.complete(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
