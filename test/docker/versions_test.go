//go:build docker

package docker_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/shared/workspace"
)

// otherGuest is a folder with a guest of other bytes than the plugin's own, as
// another version has it.
func otherGuest(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -X main.version=another",
		"-o", filepath.Join(dir, "berth-guest-linux-"+runtime.GOARCH), "./cmd/berth-guest")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return dir
}

// Two versions of the plugin use one container at once, whichever of them has made
// it, and also when the other starts it again: it keeps the guest that it was made
// with (contract B6).
func TestVersions_TwoPluginsOnOneContainer(t *testing.T) {
	t.Parallel()
	b := newBed(t, "busybox", nil)
	other := b.newHost(t, map[string]any{"guest_dir": otherGuest(t)})
	mine := b.open(t)
	theirs, err := other.Workspace(b.provider)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.WorkingDir(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, b := b.inspect(t, ref(t, mine)).Config.Labels["dev.berth.guest"], b.inspect(t, ref(t, theirs)).Config.Labels["dev.berth.guest"]; a == b || a == "" || b == "" {
		t.Fatalf("the guests are %q and %q: want two", a, b)
	}
	for name, made := range map[string]workspace.Workspace{"made by this version": mine, "made by the other": theirs} {
		t.Run(name, func(t *testing.T) {
			one, err := b.host.Attach(ref(t, made))
			if err != nil {
				t.Fatal(err)
			}
			two, err := other.Attach(ref(t, made))
			if err != nil {
				t.Fatal(err)
			}
			both := func() {
				t.Helper()
				group, ctx := errgroup.WithContext(t.Context())
				for who, ws := range map[string]workspace.Workspace{"one": one, "two": two} {
					for i := range 10 {
						group.Go(func() error {
							file := fmt.Sprintf("%s-%d", who, i)
							if err := ws.WriteFile(ctx, file, []byte(file)); err != nil {
								return err
							}
							res, err := ws.Run(ctx, workspace.Command{Args: []string{"cat", file}})
							if err == nil && res.StdoutText() != file {
								err = fmt.Errorf("%s holds %q", file, res.Stdout)
							}
							return err
						})
					}
				}
				if err := group.Wait(); err != nil {
					t.Error(err)
				}
			}
			both()
			// A command of one is found by the other.
			left, err := one.Start(t.Context(), workspace.Command{Script: "sleep 1; echo done", Detached: true})
			if err != nil {
				t.Fatal(err)
			}
			followed, err := two.AttachRun(t.Context(), left.ID(), workspace.AttachOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if res, err := followed.Wait(); err != nil || res.StdoutText() != "done\n" {
				t.Errorf("the other's command: %+v, %v", res, err)
			}
			b.stop(t, ref(t, made))
			again, err := other.Attach(ref(t, made))
			if err != nil {
				t.Fatal(err)
			}
			if got := output(t, again, "cat one-0"); got != "one-0" {
				t.Errorf("started again by the other: %q", got)
			}
			both()
		})
	}
}
