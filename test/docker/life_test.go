//go:build docker

package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestCreate_IsSafeAndAsConfigured(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{
		"mem_limit": "64m", "cpus": 0.5, "cpu_shares": 512, "pids_limit": 100, "env": map[string]string{"SECRET": "very-secret-value"},
	})
	ws := b.open(t, workspace.WithLabels(map[string]string{"team": "blue"}))
	if got := output(t, ws, `printf %s "$SECRET"`); got != "very-secret-value" {
		t.Errorf("the configured variable is %q", got)
	}
	c := b.inspect(t, ref(t, ws))
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "very-secret-value") {
		t.Errorf("the container's description holds the configured variable: %s", text)
	}
	h := c.HostConfig
	for what, ok := range map[string]bool{
		"no-new-privileges":          slices.Contains(h.SecurityOpt, "no-new-privileges"),
		"not privileged":             !h.Privileged,
		"memory":                     h.Memory == 64<<20,
		"swap is pinned to it":       h.MemorySwap == h.Memory,
		"cpus":                       h.NanoCPUs == 5e8,
		"shares":                     h.CPUShares == 512,
		"pids and the guest's own":   h.PidsLimit != nil && *h.PidsLimit > 100 && *h.PidsLimit < 400,
		"never removed by itself":    !h.AutoRemove,
		"never started by itself":    h.RestartPolicy.Name == "" || h.RestartPolicy.Name == "no",
		"network":                    h.NetworkMode == "none",
		"the embedder's label":       c.Config.Labels["team"] == "blue",
		"managed":                    c.Config.Labels[workspace.LabelManaged] == "true",
		"whose it is":                c.Config.Labels[workspace.LabelProvider] == b.provider,
		"its token is its name":      "/"+c.Config.Labels["dev.berth.token"] == c.Name,
		"its log cannot fill a disk": h.LogConfig.Config["max-size"] != "",
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	// What the engine has made of it: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID,
	// SETUID, AUDIT_WRITE and SETFCAP alone.
	if got := output(t, ws, "grep -E 'NoNewPrivs|CapBnd' /proc/self/status | tr -s '\\t\\n' ' '"); got != "CapBnd: 00000000a00000fb NoNewPrivs: 1 " {
		t.Errorf("a command's privileges: %s", got)
	}
}

// Another user than root has none of the capabilities that root has.
func TestCreate_GivesAUserNoPrivileges(t *testing.T) {
	t.Parallel()
	for _, guest := range []string{"init", "exec", "off"} {
		t.Run("with guest "+guest, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "busybox", map[string]any{"user": "agent", "guest": guest})
			got := output(t, b.open(t), "grep -E 'CapEff|CapPrm|CapAmb|CapBnd' /proc/self/status | tr -s '\\t\\n' ' '")
			if got != "CapPrm: 0000000000000000 CapEff: 0000000000000000 CapBnd: 00000000a00000fb CapAmb: 0000000000000000 " {
				t.Errorf("a command's privileges: %s", got)
			}
		})
	}
}

func TestWorkDir_IsTheUsersAndOutlivesAStop(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		image, user, dir string
		readOnly         bool
		uid              string
	}{
		{"busybox", "", "", false, "0"},
		{"busybox", "agent", "", false, "1000"},
		{"busybox", "1000:1000", "/deep/er/still", false, "1000"},
		{"busybox", "agent", "", true, "1000"},
		{"debian", "1234", "", true, "1234"},
		{"busybox", "", "/deep/er", true, "0"},
		{"busybox", "agent", "/home/agent", false, "1000"},
		{"busybox", "agent", "/tmp", true, "1000"},
		{"busybox", "agent", "/opt", true, "1000"},
	} {
		t.Run(fmt.Sprintf("%s as %s in %s read-only %v", test.image, test.user, test.dir, test.readOnly), func(t *testing.T) {
			t.Parallel()
			extra := map[string]any{"read_only": test.readOnly}
			if test.user != "" {
				extra["user"] = test.user
			}
			want := "/workspace"
			if test.dir != "" {
				extra["work_dir"], want = test.dir, test.dir
			}
			b := newBed(t, test.image, extra)
			ws := b.open(t)
			if got := output(t, ws, "id -u; pwd; echo kept >f; stat -c %u ."); got != test.uid+"\n"+want+"\n"+test.uid+"\n" {
				t.Errorf("who, where and whose: %q", got)
			}
			if err := ws.WriteFile(t.Context(), "sub/g", []byte("kept too")); err != nil {
				t.Error(err)
			}
			b.stop(t, ref(t, ws))
			again, err := b.host.Attach(ref(t, ws))
			if err != nil {
				t.Fatal(err)
			}
			if got := output(t, again, "cat f sub/g"); got != "kept\nkept too" {
				t.Errorf("after a stop the files hold %q", got)
			}
			if test.readOnly {
				res, err := again.Run(t.Context(), workspace.Command{Script: "echo x >/etc/x"})
				if err != nil || res.ExitCode == 0 {
					t.Errorf("a write outside the work directory: %+v (error %v), want a failure", res, err)
				}
				// Building in /tmp must work.
				output(t, again, `printf '#!/bin/sh\nexit 0\n' >/tmp/script && chmod 755 /tmp/script && /tmp/script`)
			}
		})
	}
}

func TestWorkDir_InMemoryIsAnotherWorkspaceAfterAStop(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{"user": "agent", "tmpfs": map[string]string{"/workspace": "size=8m"}})
	ws := b.open(t)
	output(t, ws, "echo lost >f && stat -c %u . | grep -qx 1000")
	b.stop(t, ref(t, ws))
	again, err := b.newHost(t, nil).Attach(ref(t, ws))
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, again, "ls"); got != "" {
		t.Errorf("the work directory in memory holds %q after a stop", got)
	}
	if _, err := ws.ReadFile(t.Context(), "f"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("through a handle that knew the files: %v, want ErrUnavailable", err)
	}
}

// left are the containers and volumes of a bed's provider.
func (b *bed) left(t testing.TB) (names []string) {
	t.Helper()
	ours := filters.NewArgs(filters.Arg("label", workspace.LabelProvider+"="+b.provider))
	containers, err := b.engine.ContainerList(context.WithoutCancel(t.Context()), container.ListOptions{All: true, Filters: ours})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range containers {
		names = append(names, c.Names...)
	}
	volumes, err := b.engine.VolumeList(context.WithoutCancel(t.Context()), volume.ListOptions{Filters: ours})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes.Volumes {
		names = append(names, v.Name)
	}
	return names
}

func TestCreate_ThatFailsLeavesNothingAndSaysWhy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		image  string
		config map[string]any
		says   []string
	}{
		"a runtime that the engine has not": {"busybox", map[string]any{"oci_runtime": "no-such"}, []string{"oci_runtime", "no-such"}},
		"an unknown user":                   {"busybox", map[string]any{"user": "nosuch"}, []string{"nosuch", "passwd"}},
		"an unknown group":                  {"busybox", map[string]any{"user": "agent:nosuch"}, []string{"nosuch", "group"}},
		"nothing that lasts":                {"scratch", map[string]any{"guest": "off"}, []string{"tail", "guest"}},
		"a file for a work directory":       {"busybox", map[string]any{"work_dir": "/etc/passwd/x"}, []string{"work_dir", "/etc/passwd"}},
		"a read-only work directory":        {"busybox", map[string]any{"work_dir": "/", "read_only": true}, []string{"work_dir"}},
		"a network that is not there":       {"busybox", map[string]any{"network_mode": "no-such-network"}, []string{"no-such-network"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, test.image, test.config)
			ws, err := b.host.Workspace(b.provider)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ws.WorkingDir(t.Context())
			if !errors.Is(err, workspace.ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
			for _, word := range test.says {
				if err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			if left := b.left(t); len(left) > 0 {
				t.Errorf("it left %q", left)
			}
		})
	}
}

func TestCreate_ThatIsCancelledLeavesNothingOrARef(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{"read_only": true})
	b.open(t) // so that what follows is quick
	before := len(b.left(t))
	known := 0
	for after := 10 * time.Millisecond; after < 600*time.Millisecond; after += 45 * time.Millisecond {
		ws, err := b.host.Workspace(b.provider)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, _ = ws.WorkingDir(ctx)
		cancel()
		// A create that came to its end just then is known to its handle.
		eventually(t, "a cancelled create has ended", func() bool {
			if _, ok := ws.Ref(); ok {
				known++
				return true
			}
			return len(b.left(t)) == before+2*known // each a container and its volume
		})
	}
}

func TestFailure_IsToldApartAndAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config map[string]any
		happen func(t *testing.T, b *bed, ws workspace.Workspace)
		says   string
	}{
		"removed": {nil, func(t *testing.T, b *bed, ws workspace.Workspace) {
			if err := b.engine.ContainerRemove(t.Context(), ref(t, ws).ID, container.RemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
		}, "remove"},
		"killed": {nil, func(t *testing.T, b *bed, ws workspace.Workspace) {
			if err := b.engine.ContainerKill(t.Context(), ref(t, ws).ID, "KILL"); err != nil {
				t.Fatal(err)
			}
		}, "exit code 137"},
		"stopped": {nil, func(t *testing.T, b *bed, ws workspace.Workspace) { b.stop(t, ref(t, ws)) }, "end"},
	} {
		for _, guest := range []string{"init", "exec", "off"} {
			t.Run(name+" with guest "+guest, func(t *testing.T) {
				t.Parallel()
				config := map[string]any{"guest": guest}
				b := newBed(t, "busybox", config)
				ws := b.open(t)
				p, err := ws.Start(t.Context(), workspace.Command{Script: "echo ready; sleep 600"})
				if err != nil {
					t.Fatal(err)
				}
				test.happen(t, b, ws)
				began := time.Now()
				_, err = p.Wait()
				if !errors.Is(err, workspace.ErrUnavailable) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("the command under way: %v, want ErrUnavailable that says %q", err, test.says)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("that took %v", took)
				}
				if _, err := ws.ReadFile(t.Context(), "f"); name == "removed" && !errors.Is(err, workspace.ErrUnavailable) {
					t.Errorf("a read after it: %v, want ErrUnavailable", err)
				}
			})
		}
	}
}

func TestFailure_OutOfMemoryIsSaid(t *testing.T) {
	t.Parallel()
	b := newBed(t, "debian", map[string]any{"mem_limit": "64m"})
	ws := b.open(t)
	res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"python3", "-c", "x = bytearray(1 << 30)"}, Timeout: time.Minute})
	// The guest outlives it: the command alone was killed.
	if err == nil && res.ExitCode != 137 {
		t.Errorf("a command over the limit: exit code %d, %s", res.ExitCode, res.Stderr)
	}
	if err != nil && (!errors.Is(err, workspace.ErrUnavailable) || !strings.Contains(err.Error(), "out of memory")) {
		t.Errorf("a command over the limit: %v", err)
	}
	if err == nil {
		output(t, ws, "echo still here")
	}
}

func TestDestroy_RemovesTheVolumeAndOnlyOurs(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", map[string]any{"read_only": true})
	ws := b.open(t)
	if left := b.left(t); len(left) != 2 {
		t.Errorf("a read-only workspace is %q, want a container and a volume", left)
	}
	if err := b.host.Destroy(t.Context(), ref(t, ws)); err != nil {
		t.Fatal(err)
	}
	if left := b.left(t); len(left) > 0 {
		t.Errorf("destroyed, and %q is left", left)
	}
	theirs := b.plain(t, b.provider+"-theirs", &container.Config{Cmd: []string{"sleep", "1000"}}, nil)
	for _, id := range []string{b.provider + "-theirs", theirs[:12], theirs} {
		_ = b.host.Destroy(t.Context(), workspace.Ref{Provider: b.provider, ID: id})
	}
	if _, err := b.engine.ContainerInspect(t.Context(), theirs); err != nil {
		t.Errorf("somebody else's container: %v", err)
	}
}

func TestShortNamesAreNames(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	// One letter that no other test takes: the engine is shared.
	ws := b.open(t, workspace.WithName("q"))
	if got := ref(t, ws).ID; got != "q" {
		t.Errorf("the ref's id is %q, want q", got)
	}
	var listed []string
	for info, err := range b.host.List(t.Context(), b.provider, workspace.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, info.Ref.ID)
	}
	if !slices.Equal(listed, []string{"q"}) {
		t.Errorf("listed are %q", listed)
	}
	if err := b.host.Destroy(t.Context(), ref(t, ws)); err != nil {
		t.Fatal(err)
	}
	if left := b.left(t); len(left) > 0 {
		t.Errorf("destroyed, and %q is left", left)
	}
}
