//go:build docker

package operating_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/berth-dev/berth/test/docker/enginetest"
)

// mostExposure is how much of `systemd-analyze security` may be left open, of 100.
const mostExposure = "20"

// analyze runs systemd-analyze, which is there in CI and may not be elsewhere.
func analyze(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	data, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		if os.Getenv("CI") != "" {
			t.Fatalf("systemd-analyze is not there: %v", err)
		}
		t.Skipf("systemd-analyze is not there (it is in the package systemd): %v", err)
	}
	return strings.TrimSpace(string(data)), err
}

// unit writes the unit to a file, with the binary where it is here.
func unit(t *testing.T, change ...string) string {
	t.Helper()
	text := strings.NewReplacer(append(change, "/usr/bin/berth", filepath.Join(bin, "berth"))...).Replace(read(t, docs+"berth.service"))
	file := filepath.Join(t.TempDir(), "berth.service")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// systemd finds nothing to say about the unit, and would about a wrong one.
func TestUnitIsValid(t *testing.T) {
	if output, err := analyze(t, "verify", unit(t)); err != nil || output != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, output)
	}
	for what, wrong := range map[string]string{
		"an unknown key": unit(t, "ProtectHome=", "ProtectHomes="),
		"a wrong value":  unit(t, "Type=notify", "Type=notice"),
		"no binary":      unit(t, "ExecReload=/usr/bin/berth", "ExecReload=/usr/bin/berth-that-is-not-there"),
	} {
		if output, err := analyze(t, "verify", wrong); err == nil && output == "" {
			t.Errorf("%s: systemd-analyze verify says nothing", what)
		}
	}
	if output, err := analyze(t, "security", "--offline=true", "--no-pager", "--threshold="+mostExposure, unit(t)); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, output)
	}
}

// value returns the value of the unit's one line with a key.
func value(t *testing.T, key string) string {
	t.Helper()
	var found []string
	for line := range strings.Lines(read(t, docs+"berth.service")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			found = append(found, v)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the unit has %d lines %s=", len(found), key)
	}
	return found[0]
}

// The unit's command lines do what they are to, as they stand: run as systemd runs
// them, in the folders that it makes, by a user of its own, who has nothing else.
func TestUnitsCommandLines(t *testing.T) {
	engine := enginetest.Client(t)
	name := enginetest.Unique(t)
	tag := name + ":test"
	buildImage(t, engine, tag)
	shared := t.TempDir()
	credentials, notify := filepath.Join(shared, "credentials"), filepath.Join(shared, "notify")
	for _, dir := range []string{filepath.Dir(shared), shared, credentials, notify} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(credentials, "token"), []byte(token), 0o444); err != nil {
		t.Fatal(err)
	}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(notify, "socket")})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	if err := os.Chmod(filepath.Join(notify, "socket"), 0o777); err != nil {
		t.Fatal(err)
	}
	told := make(chan string)
	go func() {
		defer close(told)
		for buf := make([]byte, 4096); ; {
			n, err := manager.Read(buf)
			if err != nil {
				return
			}
			told <- string(buf[:n])
		}
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Errorf("the service manager was told %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Errorf("the service manager was not told %q", want)
		}
	}
	const dirs = "mode=0700,uid=61234,gid=61234" // a user that systemd might make
	if name := value(t, "RuntimeDirectory"); name != "berth" || value(t, "StateDirectory") != name || value(t, "CacheDirectory") != name {
		t.Errorf("the folders are not those of the configuration: %s", name)
	}
	expand := strings.NewReplacer("${CREDENTIALS_DIRECTORY}", "/run/credentials/berth.service", "%t", "/run").Replace
	b := start(t, engine, name, &container.Config{
		Image: tag, User: "61234:61234", Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		Entrypoint: strings.Fields(expand(value(t, "ExecStart"))), Cmd: []string{},
		Env: []string{
			expand(value(t, "Environment")), "HOME=/", "TMPDIR=/tmp", "STATE_DIRECTORY=/var/lib/berth", "CACHE_DIRECTORY=/var/cache/berth",
			"RUNTIME_DIRECTORY=/run/berth", "CREDENTIALS_DIRECTORY=/run/credentials/berth.service", "NOTIFY_SOCKET=/run/manager/socket",
		},
	}, &container.HostConfig{
		ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		Tmpfs: map[string]string{"/run/berth": dirs, "/var/lib/berth": dirs, "/var/cache/berth": dirs, "/tmp": "mode=1777"},
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: credentials, Target: "/run/credentials/berth.service", ReadOnly: true},
			{Type: mount.TypeBind, Source: notify, Target: "/run/manager"},
		},
	})
	until(t, "the service manager to be told", func() bool {
		select {
		case got := <-told:
			if got != "READY=1" {
				t.Errorf("the service manager was told %q first", got)
			}
			return true
		default:
			if state := b.inspect().State; !state.Running {
				t.Fatalf("it ended with %d before it was ready", state.ExitCode)
			}
			return false
		}
	})
	if output, code := b.exec(strings.Fields(value(t, "ExecReload"))...); code != 0 || !strings.Contains(output, "notes") {
		t.Errorf("ExecReload: %d, %s", code, output)
	}
	stopped := make(chan int, 1)
	go func() { stopped <- b.stop(stopGrace) }()
	expect("STOPPING=1")
	if code := <-stopped; code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	manager.Close()
	<-told
}
