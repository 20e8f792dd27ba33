//go:build docker

package runtimes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/images"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// bed is an engine, and a name for a runtime of one's own on it.
type bed struct {
	eng    *engine.Engine
	imgs   *images.Images
	client *client.Client
	name   string
}

func newBed(t *testing.T) bed {
	t.Helper()
	b := bed{client: enginetest.Client(t), name: enginetest.Unique(t)}
	var err error
	if b.eng, err = engine.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.eng.Close() })
	b.imgs = images.New(b.eng)
	// A user's cache that nobody else locks anything in.
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return b
}

// podman says that the engine is one, which does a few things otherwise.
func (b bed) podman(t *testing.T) bool {
	t.Helper()
	version, err := b.client.ServerVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(version.Components, func(c types.ComponentVersion) bool { return strings.Contains(c.Name, "Podman") })
}

// runtime is one on a test image, of the bed's name.
func (b bed) runtime(t *testing.T, base string, keys map[string]any) Runtime {
	t.Helper()
	object := map[string]any{keyName: b.name, keyBaseImage: enginetest.Image(t, base)}
	for k, v := range keys {
		object[k] = v
	}
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (b bed) ensure(t *testing.T, r Runtime) (Image, []string) {
	t.Helper()
	var told []string
	made, err := r.Ensure(t.Context(), b.eng, b.imgs, func(p sdk.Progress) {
		told = append(told, fmt.Sprintf("%s %d/%d %s", p.Text, p.Done, p.Total, p.Unit))
	})
	if err != nil {
		t.Fatal(err)
	}
	return made, told
}

func (b bed) inspect(t *testing.T, ref string) image.InspectResponse {
	t.Helper()
	found, err := b.client.ImageInspect(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// images are the ids of all images of the bed's runtime.
func (b bed) images(t *testing.T) []string {
	t.Helper()
	list, err := b.client.ImageList(t.Context(), image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelName+"="+b.name))})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, i := range list {
		ids = append(ids, i.ID)
	}
	return ids
}

// containers are those that were made of an image of the bed's runtime, those
// of a build too.
func (b bed) containers(ctx context.Context, t *testing.T) []container.Summary {
	t.Helper()
	list, err := b.client.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelName+"="+b.name))})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// sh runs a script in a new container of an image, and returns what it wrote.
func (b bed) sh(t *testing.T, ref, script string) string {
	t.Helper()
	ctx := t.Context()
	made, err := b.client.ContainerCreate(ctx, &container.Config{Image: ref, Entrypoint: []string{"/bin/sh", "-c", script}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer b.client.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true})
	if err := b.client.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	ended, failed := b.client.ContainerWait(ctx, made.ID, container.WaitConditionNotRunning)
	select {
	case err := <-failed:
		t.Fatal(err)
	case <-ended:
	}
	logs, err := b.client.ContainerLogs(ctx, made.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, logs); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEnsureBuildsOnce(t *testing.T) {
	b := newBed(t)
	r := b.runtime(t, "debian", map[string]any{
		keySetupCommands: []string{"printf '%s' 'it'\\''s \"made\"' >/made", "cat >/script <<'EOF'\nRUN false\n\\\nEOF"},
		keyEnvVars:       map[string]string{"TOKEN": "hunter2-hunter2"},
		keyWorkDir:       "/work/here",
	})
	made, told := b.ensure(t, r)
	if made.WorkDir != "/work/here" || made.Env["TOKEN"] != "hunter2-hunter2" || !strings.HasPrefix(made.Ref, "berth-runtime:"+b.name+"-") {
		t.Errorf("made %+v", made)
	}
	if want := "runtime " + b.name + `: printf '%s' 'it'\''s "made"' >/made 4/6 steps`; !slices.Contains(told, want) {
		t.Errorf("told %q, want %q among it", told, want)
	}
	if got, want := b.sh(t, made.Ref, "cat /made /script; pwd; id -u"), "it's \"made\"RUN false\n\\\n/work/here\n0\n"; got != want {
		t.Errorf("in the image %q, want %q", got, want)
	}
	found := b.inspect(t, made.Ref)
	if l := found.Config.Labels; l[labelManaged] != "true" || l[labelName] != b.name || l[labelDigest] != r.digest() {
		t.Errorf("labels %v", l)
	}
	history, err := b.client.ImageHistory(t.Context(), made.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v %+v", found.Config, history); strings.Contains(text, "hunter2") {
		t.Errorf("a configured variable is in the image: %s", text)
	}

	again, told := b.ensure(t, r)
	if again.Ref != made.Ref || len(told) != 0 || b.inspect(t, again.Ref).ID != found.ID {
		t.Errorf("again %+v, told %q, want the same image and no work", again, told)
	}
	if left := b.containers(t.Context(), t); len(left) > 0 {
		t.Errorf("the build left %d containers", len(left))
	}
}

func TestUnprivilegedUser(t *testing.T) {
	b := newBed(t)
	for _, test := range []struct {
		base string
		uid  int
		want string
	}{
		// 1000 has an account in the test images, 1234 has none. Debian's agent has
		// its name already.
		{"debian", 1000, "1000 agent 1000 /home/agent\n"},
		{"debian", 1234, "1234 agent-1234 1234 /home/agent-1234\n"},
		{"busybox", 1234, "1234 agent-1234 1234 /home/agent-1234\n"},
	} {
		t.Run(fmt.Sprint(test.base, test.uid), func(t *testing.T) {
			made, _ := b.ensure(t, b.runtime(t, test.base, map[string]any{keyRunAsUID: test.uid, keySetupCommands: []string{"test $(id -u) = 0"}}))
			got := b.sh(t, made.Ref, `touch a ~/b || exit; echo $(id -u) $(id -un) $(id -g) ~`)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestBaseImagesOwnUserStays(t *testing.T) {
	b := newBed(t)
	base := b.name + "/base:latest"
	named, err := b.client.ContainerCreate(t.Context(), &container.Config{Image: enginetest.Image(t, "debian")}, nil, nil, nil, b.name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.ContainerCommit(t.Context(), named.ID, container.CommitOptions{Reference: base, Config: &container.Config{}, Changes: []string{"USER agent:agent"}}); err != nil {
		t.Fatal(err)
	}
	r := b.runtime(t, "debian", map[string]any{keyBaseImage: base, keySetupCommands: []string{"id -un >/who"}})
	made, _ := b.ensure(t, r)
	if got := b.sh(t, made.Ref, "cat /who; id -un; touch a && echo ok"); got != "root\nagent\nok\n" {
		t.Errorf("got %q, want the set-up as root, and the rest as agent in a folder of its own", got)
	}
}

func TestFailedBuild(t *testing.T) {
	b := newBed(t)
	r := b.runtime(t, "busybox", map[string]any{keySetupCommands: []string{"true", "echo on the way; echo 'E: no such thing' >&2; exit 42"}})
	_, err := r.Ensure(t.Context(), b.eng, b.imgs, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, s := range []string{b.name, "step 5 of 6", "echo on the way", " 42; its last lines:\n", "\nE: no such thing"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	if _, err := b.client.ImageInspect(t.Context(), r.reference()); err == nil {
		t.Error("a build that failed has its name")
	}
	if left := b.containers(t.Context(), t); len(left) > 0 {
		t.Errorf("the build left %d containers", len(left))
	}
	// Its layers are a cache for the next try, and go with a prune.
	if len(b.images(t)) == 0 {
		t.Error("what the build left has no label: no prune can find it")
	}
	b.prune(t, r.reference())
	if left := b.images(t); len(left) > 0 {
		t.Errorf("the prune left %v", left)
	}
}

// A build uses the proxy that Docker's own client would give it, and tells nobody.
func TestBuildUsesTheProxy(t *testing.T) {
	b := newBed(t)
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	const proxy = "http://user:hunter2-hunter2@proxy.invalid:3128"
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"proxies":{"default":{"httpProxy":"`+proxy+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	made, _ := b.ensure(t, b.runtime(t, "busybox", map[string]any{keySetupCommands: []string{`echo "$http_proxy" | sha256sum >/proxy`}}))
	want := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(proxy+"\n")))
	if got := b.sh(t, made.Ref, `cat /proxy; echo "$http_proxy"`); got != want+"\n" {
		t.Errorf("got %q, want %q in the build and none after", got, want)
	}
	history, err := b.client.ImageHistory(t.Context(), made.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf("%+v %+v", b.inspect(t, made.Ref).Config, history); strings.Contains(text, "hunter2") {
		t.Errorf("the proxy's password is in the image: %s", text)
	}
}

func TestMissingBaseImage(t *testing.T) {
	b := newBed(t)
	// Nothing listens there.
	r := b.runtime(t, "busybox", map[string]any{keyBaseImage: "127.0.0.1:1/" + b.name + ":latest"})
	if _, err := r.Ensure(t.Context(), b.eng, b.imgs, nil); err == nil || !strings.Contains(err.Error(), r.BaseImage) {
		t.Errorf("%v, want an error that names %s", err, r.BaseImage)
	}
}

func TestCancelledBuildIsStopped(t *testing.T) {
	b := newBed(t)
	r := b.runtime(t, "busybox", map[string]any{keySetupCommands: []string{"echo started; sleep 60"}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, steps := make(chan error, 1), make(chan string, 100)
	go func() {
		_, err := r.Ensure(ctx, b.eng, b.imgs, func(p sdk.Progress) { steps <- p.Text })
		ended <- err
	}()
	for reached := false; !reached; {
		select {
		case text := <-steps:
			reached = strings.Contains(text, "sleep 60")
		case err := <-ended:
			t.Fatal(err)
		}
	}
	if !b.podman(t) { // it does not show what it builds in
		waitFor(t, "the step to run", func() bool {
			return slices.ContainsFunc(b.containers(t.Context(), t), func(c container.Summary) bool { return c.State == "running" })
		})
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a cancelled Ensure does not return")
	}
	waitFor(t, "the step to be stopped", func() bool { return len(b.containers(t.Context(), t)) == 0 })
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no end of waiting for %s", what)
		}
	}
}

// racing is the environment variable that makes this test binary a process that
// builds the runtime which the variable describes, and prints the image's id.
const racing = "BERTH_TEST_RUNTIME"

func TestRacingProcess(t *testing.T) {
	raw := os.Getenv(racing)
	if raw == "" {
		raw = `"python-minimal"` // alone, it only shows that it parses
	}
	r, err := Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(racing) == "" {
		return
	}
	eng, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	made, err := r.Ensure(t.Context(), eng, images.New(eng), nil)
	if err != nil {
		t.Fatal(err)
	}
	found, err := eng.Client().ImageInspect(t.Context(), made.Ref)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("image %s\n", found.ID)
}

// Processes, and callers in them, that want one runtime at once end in one image,
// also where they cannot see each other's lock.
func TestConcurrentBuildsEndInOneImage(t *testing.T) {
	for name, locks := range map[string]func(i int) string{
		"of one user and machine": func(int) string { return "" },
		"of several machines":     func(int) string { return t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			r := b.runtime(t, "busybox", map[string]any{
				// Different each time it runs, so that two builds cannot make the same.
				keySetupCommands: []string{"head -c 32 /dev/urandom >/random", "sleep 1"},
			})
			object, err := json.Marshal(map[string]any{keyName: r.Name, keyBaseImage: r.BaseImage, keySetupCommands: r.SetupCommands})
			if err != nil {
				t.Fatal(err)
			}
			const processes = 3
			outs := make([][]byte, processes)
			errs := make([]error, processes)
			var all sync.WaitGroup
			for i := range processes {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRacingProcess$", "-test.v")
				cmd.Env = append(os.Environ(), racing+"="+string(object))
				if dir := locks(i); dir != "" {
					cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+dir)
				}
				all.Go(func() { outs[i], errs[i] = cmd.CombinedOutput() })
			}
			all.Go(func() {
				if _, err := r.Ensure(t.Context(), b.eng, b.imgs, nil); err != nil {
					t.Error(err)
				}
			})
			all.Wait()
			for i := range processes {
				if errs[i] != nil {
					t.Fatalf("a process: %v\n%s", errs[i], outs[i])
				}
			}
			id := b.inspect(t, r.reference()).ID
			if left := b.images(t); len(left) != 1 || left[0] != id {
				t.Errorf("images %v, want %s alone", left, id)
			}
		})
	}
}
