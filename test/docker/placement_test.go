//go:build docker

package docker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// guestOf is how the guest of a bed's one workspace is placed, as a listing tells.
func (b *bed) guestOf(t testing.TB) string {
	t.Helper()
	for info, err := range b.host.List(t.Context(), b.provider, workspace.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		return info.Details["guest"]
	}
	t.Fatal("nothing is listed")
	return ""
}

func TestPlacement_IsListed(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]map[string]any{
		"init":                 nil,
		"exec":                 {"guest": "exec"},
		"none (as configured)": {"guest": "off"},
	} {
		b := newBed(t, "busybox", config)
		ws := b.open(t)
		output(t, ws, "true")
		if got := b.guestOf(t); got != want {
			t.Errorf("with %v the guest is %q, want %q", config, got, want)
		}
	}
}

func TestPlacement_WithoutABinaryIsNone(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{"guest_dir": t.TempDir()})
	output(t, b.open(t), "true")
	if got := b.guestOf(t); !strings.HasPrefix(got, "none (there is no berth-guest-linux-") {
		t.Errorf("the guest is %q, want none and why", got)
	}
	ws, err := b.newHost(t, map[string]any{"guest": "init"}).Workspace(b.provider)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.WorkingDir(t.Context()); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("a guest that has to be init, and is not there: %v, want ErrInvalid", err)
	}
}

func TestPlacement_AGuestThatCannotRunIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "berth-guest-linux-"+runtime.GOARCH), []byte("no program at all "+t.Name()), 0o755); err != nil {
		t.Fatal(err)
	}
	b := newBed(t, "busybox", map[string]any{"guest_dir": dir})
	output(t, b.open(t), "true")
	if got := b.guestOf(t); !strings.HasPrefix(got, "none (") {
		t.Errorf("the guest is %q, want none and why", got)
	}
	if left := b.left(t); len(left) != 1 {
		t.Errorf("after a fallback there is %q, want one container", left)
	}
}

// ownGuest is a folder with a guest that no other test has: a program is not
// changed by a byte at its end.
func ownGuest(t testing.TB) (dir, digest string) {
	t.Helper()
	name := "berth-guest-linux-" + runtime.GOARCH
	content, err := os.ReadFile(filepath.Join(bin, name))
	if err != nil {
		t.Fatal(err)
	}
	content = append(content, enginetest.Unique(t)...)
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return dir, hex.EncodeToString(sum[:])
}

// dropVolume removes a guest's volume, once its containers are gone.
func (b *bed) dropVolume(t testing.TB, digest string) {
	t.Cleanup(func() {
		for info, err := range b.host.List(t.Context(), b.provider, workspace.ListOptions{}) {
			if err == nil {
				_ = b.host.Destroy(t.Context(), info.Ref)
			}
		}
		_ = b.engine.VolumeRemove(t.Context(), "berth-guest-"+digest[:16], false)
	})
}

func TestGuestVolume_IsFilledOnceByManyAtOnce(t *testing.T) {
	t.Parallel()
	dir, digest := ownGuest(t)
	b := newBed(t, "busybox", map[string]any{"guest_dir": dir, "guest": "init"})
	b.dropVolume(t, digest)
	var wg sync.WaitGroup
	for range 4 {
		h := b.newHost(t, nil)
		wg.Go(func() {
			ws, err := h.Workspace(b.provider)
			if err == nil {
				_, err = ws.WorkingDir(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	v, err := b.engine.VolumeInspect(t.Context(), "berth-guest-"+digest[:16])
	if err != nil {
		t.Fatal(err)
	}
	if v.Labels["dev.berth.guest"] != digest || v.Labels[workspace.LabelManaged] != "true" {
		t.Errorf("the volume's labels are %v", v.Labels)
	}
	if _, err := b.engine.ContainerInspect(t.Context(), "berth-guest-lock-"+digest[:16]); err == nil {
		t.Error("the container that the volume was filled through is still there")
	}
}

func TestGuestVolume_ThatWasEmptiedIsFilledAgain(t *testing.T) {
	t.Parallel()
	for _, placement := range []string{"init", "exec"} {
		t.Run(placement, func(t *testing.T) {
			t.Parallel()
			dir, digest := ownGuest(t)
			b := newBed(t, "busybox", map[string]any{"guest_dir": dir, "guest": placement})
			b.dropVolume(t, digest)
			ws := b.open(t) // this process takes the volume for verified from here on
			b.plain(t, b.provider+"-thief", &container.Config{Cmd: []string{"sh", "-c", "rm -f /v/*"}},
				&container.HostConfig{Binds: []string{"berth-guest-" + digest[:16] + ":/v"}})
			eventually(t, "the volume is empty", func() bool {
				c, err := b.engine.ContainerInspect(t.Context(), b.provider+"-thief")
				return err == nil && !c.State.Running
			})
			output(t, b.open(t), "true")
			b.stop(t, ref(t, ws))
			again, err := b.host.Attach(ref(t, ws))
			if err != nil {
				t.Fatal(err)
			}
			output(t, again, "true")
		})
	}
}

func TestGuest_ThatIsKilledIsStartedAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	ws := b.open(t)
	for range 3 {
		res, err := ws.Run(t.Context(), workspace.Command{Script: "kill -9 -1"})
		if err == nil && res.ExitCode != 137 {
			t.Errorf("a command that kills all: exit code %d", res.ExitCode)
		}
		eventually(t, "a command after it", func() bool {
			res, err := ws.Run(t.Context(), workspace.Command{Script: "echo back"})
			return err == nil && string(res.Stdout) == "back\n"
		})
	}
}

func TestForeign_ContainersAreUsedAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config container.Config
		host   container.HostConfig
		places bool
	}{
		"a root that can be written": {container.Config{User: "1000"}, container.HostConfig{}, true},
		"by the user's name":         {container.Config{User: "agent"}, container.HostConfig{}, true},
		"memory to run in":           {container.Config{}, container.HostConfig{ReadonlyRootfs: true, Tmpfs: map[string]string{"/tmp": "exec"}}, true},
		"nowhere to put a guest":     {container.Config{}, container.HostConfig{ReadonlyRootfs: true, Tmpfs: map[string]string{"/tmp": "noexec"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "debian", nil)
			box := b.provider + "-box"
			test.config.Cmd = []string{"sleep", "10000"}
			test.config.WorkingDir = "/tmp"
			id := b.plain(t, box, &test.config, &test.host)
			h := b.newHost(t, map[string]any{"container_name": box})
			ws, err := h.Workspace(b.provider)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if got := output(t, ws, "pwd; echo "+strconv.Itoa(i)); got != fmt.Sprintf("/tmp\n%d\n", i) {
					t.Errorf("a command says %q", got)
				}
			}
			if got := ref(t, ws).ID; got != box {
				t.Errorf("the ref's id is %q, want %s", got, box)
			}
			features, err := ws.Features(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := features.Has(workspace.FeatureAttachRun); got != test.places {
				t.Errorf("there is a guest: %v, want %v", got, test.places)
			}
			if c, err := b.engine.ContainerInspect(t.Context(), box); err != nil || c.ID != id {
				t.Errorf("the container is another one (error %v)", err)
			}
			kill(t, h)
			eventually(t, "the next plugin finds its way in", func() bool {
				res, err := ws.Run(t.Context(), workspace.Command{Script: "echo again"})
				return err == nil && string(res.Stdout) == "again\n"
			})
		})
	}
}

func TestNetworkHost_TwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{"network_mode": "host"})
	one, two := b.open(t), b.open(t)
	for i := range 5 {
		output(t, one, fmt.Sprintf("echo %d >mine", i))
		output(t, two, "test ! -e mine")
	}
}

func TestPidsLimit_ABombAndManyCommandsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{"pids_limit": 64})
	ws := b.open(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := ws.Run(t.Context(), workspace.Command{Script: ":(){ :|: & }; :; sleep 60", Timeout: 3 * time.Second})
		var timeout *workspace.TimeoutError
		if err != nil && !errors.As(err, &timeout) && !errors.Is(err, workspace.ErrTransient) {
			t.Errorf("the bomb: %v", err)
		}
	})
	for range 20 {
		wg.Go(func() {
			_, err := ws.Run(t.Context(), workspace.Command{Args: []string{"sleep", "1"}, Timeout: 20 * time.Second})
			var timeout *workspace.TimeoutError
			if err != nil && !errors.As(err, &timeout) && !errors.Is(err, workspace.ErrTransient) {
				t.Errorf("a command beside it: %v", err)
			}
		})
	}
	wg.Wait()
	eventually(t, "the next command works", func() bool {
		res, err := ws.Run(t.Context(), workspace.Command{Script: "echo alive"})
		return err == nil && string(res.Stdout) == "alive\n"
	})
}

func TestPidsLimit_ZombiesDoNotCount(t *testing.T) {
	t.Parallel()
	for _, guest := range []string{"init", "exec", "off"} {
		t.Run(guest, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "busybox", map[string]any{"pids_limit": 64, "guest": guest})
			ws := b.open(t)
			output(t, ws, "i=0; while [ $i -lt 200 ]; do sh -c '(true &)'; i=$((i+1)); done")
			output(t, ws, "i=0; while [ $i -lt 200 ]; do sh -c '(true &)'; i=$((i+1)); done; ps | grep -c ' Z' | grep -qx 0 || ps >&2")
		})
	}
}

func TestManyWorkspacesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	const many = 50
	var wg sync.WaitGroup
	seen := make([]string, many)
	for i := range many {
		wg.Go(func() {
			ws, err := b.host.Workspace(b.provider)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := ws.Run(t.Context(), workspace.Command{Script: "hostname"})
			if err != nil {
				t.Error(err)
				return
			}
			seen[i] = string(res.Stdout)
		})
	}
	wg.Wait()
	apart := map[string]bool{}
	for _, name := range seen {
		apart[name] = true
	}
	if len(apart) != many {
		t.Errorf("%d workspaces are %d containers", many, len(apart))
	}
}
