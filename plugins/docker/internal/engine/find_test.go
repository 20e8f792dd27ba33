package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// writeContext writes a context as Docker's own client does.
func writeContext(t *testing.T, config, name string, endpoints map[string]any, tls map[string][]byte) {
	t.Helper()
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	content, err := json.Marshal(map[string]any{"Name": name, "Metadata": map[string]any{}, "Endpoints": endpoints})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(config, "contexts", "meta", id, "meta.json"), content)
	for file, content := range tls {
		write(t, filepath.Join(config, "contexts", "tls", id, "docker", file), content)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func at(host string) map[string]any {
	return map[string]any{"docker": map[string]any{"Host": host}}
}

func TestFindsTheEngineAsDockersOwnClientDoes(t *testing.T) {
	config := t.TempDir()
	writeContext(t, config, "one", at("unix:///one.sock"), nil)
	writeContext(t, config, "two", at("tcp://two.example.com"), nil)
	writeContext(t, config, "far", at("ssh://me@far.example.com"), nil)
	current := t.TempDir()
	writeContext(t, current, "one", at("unix:///one.sock"), nil)
	writeContext(t, current, "two", at("unix:///two.sock"), nil)
	write(t, filepath.Join(current, "config.json"), []byte(`{"currentContext":"one"}`))
	back := t.TempDir()
	write(t, filepath.Join(back, "config.json"), []byte(`{"currentContext":"default"}`))

	for _, test := range []struct {
		name       string
		env        map[string]string
		host, from string
	}{
		{name: "nothing is set", host: client.DefaultDockerHost, from: "the default"},
		{name: "a socket", env: map[string]string{envHost: "unix:///x.sock"}, host: "unix:///x.sock", from: envHost},
		{name: "a host", env: map[string]string{envHost: "tcp://h:1"}, host: "tcp://h:1", from: envHost},
		{name: "a host without a scheme", env: map[string]string{envHost: "h:1"}, host: "tcp://h:1", from: envHost},
		{name: "a host without a port", env: map[string]string{envHost: "tcp://h"}, host: "tcp://h:2375", from: envHost},
		{name: "a path on a host", env: map[string]string{envHost: "tcp://h:1/engines/a"}, host: "tcp://h:1/engines/a", from: envHost},
		{name: "ssh", env: map[string]string{envHost: "ssh://me@h"}, host: "ssh://me@h", from: envHost},
		{name: "a context", env: map[string]string{envConfig: config, envContext: "one"}, host: "unix:///one.sock", from: `context "one" of ` + envContext},
		{name: "a context on a host", env: map[string]string{envConfig: config, envContext: "two"}, host: "tcp://two.example.com:2375", from: `context "two" of ` + envContext},
		{name: "a context over ssh", env: map[string]string{envConfig: config, envContext: "far"}, host: "ssh://me@far.example.com", from: `context "far" of ` + envContext},
		{name: "the current context", env: map[string]string{envConfig: current}, host: "unix:///one.sock", from: `context "one" of ` + filepath.Join(current, "config.json")},
		{name: "another than the current context", env: map[string]string{envConfig: current, envContext: "two"}, host: "unix:///two.sock", from: `context "two" of ` + envContext},
		{name: "the default context", env: map[string]string{envConfig: current, envContext: "default"}, host: client.DefaultDockerHost, from: "the default"},
		{name: "the current context is the default", env: map[string]string{envConfig: back}, host: client.DefaultDockerHost, from: "the default"},
		{name: "a host before a context", env: map[string]string{envConfig: current, envContext: "two", envHost: "unix:///x.sock"}, host: "unix:///x.sock", from: envHost},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, test.env)
			e := openHere(t)
			if e.Address() != test.host || e.endpoint.from != test.from {
				t.Errorf("it is %s from %s; want %s from %s", e.Address(), e.endpoint.from, test.host, test.from)
			}
		})
	}
}

func TestAnEngineThatIsConfiguredWrongly(t *testing.T) {
	broken := t.TempDir()
	write(t, filepath.Join(broken, "config.json"), []byte(`{"currentContext":`))
	other := t.TempDir()
	writeContext(t, other, "cluster", map[string]any{"kubernetes": map[string]any{"Host": "https://k"}}, nil)
	writeContext(t, other, "typo", at("htp://h"), nil)
	writeContext(t, other, "garbled", at("x"), nil)
	sum := sha256.Sum256([]byte("garbled"))
	write(t, filepath.Join(other, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"), []byte("{"))
	onlyKey := t.TempDir()
	write(t, filepath.Join(onlyKey, "key.pem"), []byte("x"))
	badCA := t.TempDir()
	write(t, filepath.Join(badCA, "ca.pem"), []byte("x"))

	for _, test := range []struct {
		name  string
		env   map[string]string
		texts []string
	}{
		{name: "an unknown scheme", env: map[string]string{envHost: "htp://h"}, texts: []string{envHost, "htp://h", "unix:///var/run/docker.sock"}},
		{name: "a file descriptor", env: map[string]string{envHost: "fd://3"}, texts: []string{envHost, "unix:///var/run/docker.sock"}},
		{name: "ssh with a password", env: map[string]string{envHost: "ssh://me:pw@h"}, texts: []string{envHost, "plain-text password"}},
		{name: "no such context", env: map[string]string{envContext: "none"}, texts: []string{`context "none"`, envContext, "docker context ls"}},
		{name: "a context of something else", env: map[string]string{envConfig: other, envContext: "cluster"}, texts: []string{`context "cluster"`, "docker endpoint"}},
		{name: "a context of an unknown scheme", env: map[string]string{envConfig: other, envContext: "typo"}, texts: []string{`context "typo"`, "htp"}},
		{name: "a garbled context", env: map[string]string{envConfig: other, envContext: "garbled"}, texts: []string{`context "garbled"`, "meta.json"}},
		{name: "a garbled configuration", env: map[string]string{envConfig: broken}, texts: []string{filepath.Join(broken, "config.json"), "mend", envHost}},
		{name: "no certificates", env: map[string]string{envHost: "tcp://h:1", envTLSVerify: "1", envCertPath: "/nowhere"}, texts: []string{"/nowhere/ca.pem", envCertPath}},
		{name: "a key without its certificate", env: map[string]string{envHost: "tcp://h:1", envCertPath: onlyKey}, texts: []string{"no cert.pem", onlyKey}},
		{name: "an authority that is none", env: map[string]string{envHost: "tcp://h:1", envTLSVerify: "1", envCertPath: badCA}, texts: []string{"ca.pem", badCA}},
	} {
		t.Run(test.name, func(t *testing.T) {
			environment(t, test.env)
			_, err := Open()
			if !errors.Is(err, workspace.ErrInvalid) {
				t.Fatalf("it is %v", err)
			}
			for _, text := range test.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not hold %q", err, text)
				}
			}
		})
	}
}

func TestConfigDirIsInTheHomeFolder(t *testing.T) {
	t.Setenv(envConfig, "")
	t.Setenv("HOME", "/home/me")
	if got := ConfigDir(); got != filepath.FromSlash("/home/me/.docker") {
		t.Errorf("it is %s", got)
	}
}
