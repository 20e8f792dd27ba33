package docker

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestCheck_SaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/var/run", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		config string
		want   []string // in the error, the key first; none: it is sound
	}{
		{`{}`, nil},
		{`{"image": "registry.example.com:5000/a/b@sha256:` + strings.Repeat("0", 64) + `"}`, nil},
		{`{"image": "Not An Image"}`, []string{"image", "Not An Image", "python:3.12-slim"}},
		{`{"image": "a", "runtime": "go"}`, []string{"runtime", "leave one of them out"}},
		{`{"runtime": "no-such"}`, []string{"runtime", "no-such"}},
		{`{"runtime": "go"}`, nil},
		{`{"work_dir": "workspace"}`, []string{"work_dir", "absolute"}},
		{`{"work_dir": "/a/../b"}`, []string{"work_dir", "/b"}},
		{`{"work_dir": "/a:b"}`, []string{"work_dir", "colon"}},
		{`{"work_dir": "/"}`, nil},
		{`{"work_dir": "/proc/x"}`, []string{"work_dir", "/proc/x", "/workspace"}},
		{`{"work_dir": "/dev/shm"}`, []string{"work_dir", "/dev/shm"}},
		{`{"work_dir": "/development"}`, nil},
		{`{"mem_limit": "1m"}`, []string{"mem_limit", "6m"}},
		{`{"mem_limit": "512m"}`, nil},
		{`{"mem_limit": 536870912}`, nil},
		{`{"cpus": -1}`, []string{"cpus", "-1"}},
		{`{"cpus": 0.001}`, []string{"cpus", "0.001", "0.01"}},
		{`{"cpu_shares": 1}`, []string{"cpu_shares", "1024"}},
		{`{"pids_limit": -2}`, []string{"pids_limit", "-2"}},
		{`{"pids_limit": -1}`, nil},
		{`{"user": "1000:1000"}`, nil},
		{`{"user": "a b"}`, []string{"user", "a b"}},
		{`{"user": "-u"}`, []string{"user"}},
		{`{"user": "2147483647:0"}`, nil},
		{`{"user": "2147483648"}`, []string{"user", "2147483648", "2147483647"}},
		{`{"user": "0:99999999999999999999"}`, []string{"user", "99999999999999999999"}},
		{`{"network_mode": "container:other"}`, nil},
		{`{"network_mode": "a b"}`, []string{"network_mode", "none"}},
		{`{"oci_runtime": "run sc"}`, []string{"oci_runtime", "runsc"}},
		{`{"container_name": "x"}`, []string{"container_name", "2 or more"}},
		{`{"container_name": "My_box.1"}`, nil},
		{`{"container_name": "berth-0123456789abcdef"}`, []string{"container_name", "token"}},
		{`{"guest": "perhaps"}`, []string{"guest", "auto, init, exec or off"}},
		{`{"tmpfs": {"tmp": ""}}`, []string{"tmpfs", "absolute"}},
		{`{"tmpfs": {"/tmp": "size=64m,mode=1777"}}`, nil},
		{`{"tmpfs": {"/tmp": "size=64m, mode=1777"}}`, []string{"tmpfs", "/tmp", "commas"}},
		{`{"tmpfs": {"/.berth/run": ""}}`, []string{"config key tmpfs", "/.berth"}},
		{`{"tmpfs": {"/": ""}}`, []string{"config key tmpfs", "whole file system"}},
		{`{"tmpfs": {"/a": "", "/a/": ""}}`, []string{"config key tmpfs", "twice"}},
		{`{"volumes": {"/data": "/data"}}`, nil},
		{`{"volumes": {"./data": "/data:ro"}}`, nil},
		{`{"volumes": {"named": "/data"}}`, nil},
		{`{"volumes": {"/data": "data"}}`, []string{"volumes", "absolute"}},
		{`{"volumes": {"/data": "/"}}`, []string{"volumes", "whole file system"}},
		{`{"volumes": {"/data": "/data:nonsense"}}`, []string{"volumes", "nonsense"}},
		{`{"volumes": {"/data": "/x", "/other": "/x"}}`, []string{"volumes", "/x"}},
		{`{"volumes": {"/data": "/x"}, "tmpfs": {"/x": ""}}`, []string{"tmpfs", "/x"}},
		{`{"volumes": {"/var/run/docker.sock": "/var/run/docker.sock"}}`, []string{"volumes", "docker.sock"}},
		{`{"volumes": {"/var/run": "/host"}}`, []string{"volumes", "docker.sock"}},
		{`{"volumes": {"/": "/host"}}`, []string{"volumes", "docker.sock"}},
		{`{"volumes": {"/run/../run/docker.sock": "/s"}}`, []string{"volumes", "docker.sock"}},
		{`{"volumes": {"` + dir + `/link": "/host"}}`, []string{"volumes", "docker.sock"}},
	} {
		config, err := sdk.Override(Config{}, nil)
		if err == nil {
			err = json.Unmarshal([]byte(test.config), &config)
		}
		if err == nil {
			_, err = config.check()
		}
		switch {
		case test.want == nil && err != nil:
			t.Errorf("%s: %v, want none", test.config, err)
		case test.want != nil && !errors.Is(err, workspace.ErrInvalid):
			t.Errorf("%s: error %v, want ErrInvalid", test.config, err)
		}
		for _, want := range test.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", test.config, err, want)
			}
		}
	}
}

func TestCheck_VolumesAreInTheEnginesSyntax(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Config{Volumes: map[string]string{"/data": "/a:ro", "data": "/b", "named": "/c/", "./data": "/d"}}.check()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{here + "/data:/d", "/data:/a:ro", "data:/b", "named:/c"}
	if !reflect.DeepEqual(c.binds, want) {
		t.Errorf("binds are %q, want %q", c.binds, want)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{`"512m"`: 512 << 20, `"2g"`: 2 << 30, `1048576`: 1 << 20, `"1.5g"`: 3 << 29, `"64MiB"`: 64 << 20} {
		var s Size
		if err := json.Unmarshal([]byte(text), &s); err != nil || s != want {
			t.Errorf("%s is %d (error %v), want %d", text, s, err, want)
		}
	}
	for _, text := range []string{`"many"`, `true`, `"512 potatoes"`, `{}`} {
		var s Size
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s is %d, want an error", text, s)
		}
	}
}

func TestPlan_MemoryIsExecutableAndTheUsers(t *testing.T) {
	c, err := Config{
		ReadOnly: true, WorkDir: "/mem",
		Tmpfs: map[string]string{"/mem": "size=1m", "/plain": "", "/no": "noexec", "/set": "uid=5,exec"},
	}.check()
	if err != nil {
		t.Fatal(err)
	}
	p := plan{config: c, workDir: "/mem", who: identity{1000, 100}, guest: placement{how: guestInit}}
	want := map[string]string{
		"/mem":   "size=1m,exec,mode=0755,uid=1000,gid=100",
		"/plain": "exec",
		"/no":    "noexec",
		"/set":   "uid=5,exec",
		"/tmp":   "exec,mode=1777",
		guestRun: "size=1m,mode=0700,uid=1000,gid=100",
	}
	if got := p.tmpfs(); !reflect.DeepEqual(got, want) {
		t.Errorf("tmpfs is %q, want %q", got, want)
	}
	if p.workVolume() {
		t.Error("a work directory in memory has a volume as well")
	}
}

func TestContainerName_IsTheEnginesAndUnique(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"a", "ab", "a-b", "berth-0123456789abcdef"} {
		name := containerName(id)
		if !containerSyntax.MatchString(name) {
			t.Errorf("workspace %s is container %q, which no engine takes", id, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("workspaces %s and %s are both container %s", id, other, name)
		}
		seen[name] = id
	}
}
