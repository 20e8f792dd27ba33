//go:build docker

package images

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// reports keeps what a pull tells.
type reports struct {
	mu  sync.Mutex
	all []sdk.Progress
}

func (r *reports) add(p sdk.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, p)
}

// counted is the reports that have a number.
func (r *reports) counted() []sdk.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(p sdk.Progress) bool { return p.Total == 0 })
}

func (r *reports) texts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var texts []string
	for _, p := range r.all {
		texts = append(texts, p.Text)
	}
	return strings.Join(texts, "\n")
}

func TestPullsWhatIsMissingAndTellsHowFar(t *testing.T) {
	images := open(t)
	r := newRegistry(t)
	ref := r.push(t, "ok", newImage(t, "amd64"))
	var told reports
	found, err := images.Ensure(t.Context(), ref, told.add)
	if err != nil {
		t.Fatal(err)
	}
	if found.ID == "" || !slices.Contains(found.RepoTags, ref) {
		t.Errorf("the image is %s %v", found.ID, found.RepoTags)
	}
	if !strings.Contains(told.texts(), "pulling "+ref) {
		t.Errorf("it tells\n%s", told.texts())
	}
	counted := told.counted()
	if len(counted) == 0 {
		t.Fatal("it tells no number")
	}
	var done int64
	for _, p := range counted {
		if p.Done < done || p.Done > p.Total || p.Unit != "bytes" {
			t.Errorf("after %d: %+v", done, p)
		}
		done = p.Done
	}
	// A tar has more bytes than the files in it.
	if last := counted[len(counted)-1]; last.Done != last.Total || last.Total < 2*layerSize || last.Total > 3*layerSize {
		t.Errorf("the last number is %d of %d; the layers are two of about %d", last.Done, last.Total, layerSize)
	}

	asked := r.count("")
	if _, err := images.Ensure(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.count(""); got != asked {
		t.Errorf("an image that is there has made %d requests to the registry", got-asked)
	}
}

func TestPullsByDigest(t *testing.T) {
	images := open(t)
	r := newRegistry(t)
	img := newImage(t, "amd64")
	r.push(t, "ok", img)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref := r.host + "/" + r.repo + "@" + digest.String()
	t.Cleanup(func() { // the test's other images have a tag to be found by
		_, err := images.engine.Client().ImageRemove(context.WithoutCancel(t.Context()), ref, image.RemoveOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	if found, err := images.Ensure(t.Context(), ref, nil); err != nil || !slices.Contains(found.RepoDigests, ref) {
		t.Errorf("%v, %v", found.RepoDigests, err)
	}
}

func TestConcurrentCallersShareAPull(t *testing.T) {
	const callers = 8
	images := open(t)
	r := newRegistry(t)
	ref := r.push(t, "ok", newImage(t, "amd64"))
	// The registry waits until all have come.
	release := make(chan struct{})
	r.answers(func(_ http.ResponseWriter, req *http.Request) bool {
		select {
		case <-release:
		case <-req.Context().Done():
		}
		return false
	})
	var all [callers]reports
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			if _, err := images.Ensure(t.Context(), ref, all[i].add); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all callers to share the pull", func() bool { return images.callers(ref) == callers })
	close(release)
	group.Wait()
	if got := r.count("GET /v2/" + r.repo + "/manifests/"); got != 1 {
		t.Errorf("the manifest was read %d times", got)
	}
	for i := range all {
		if counted := all[i].counted(); len(counted) == 0 {
			t.Errorf("caller %d was told no number", i)
		}
	}
	if len(images.pulls) != 0 {
		t.Error("a pull that has ended is kept")
	}
}

// callers is how many wait for the pull of an image and listen to it.
func (s *Images) callers(ref string) int {
	s.mu.Lock()
	p := s.pulls[ref]
	s.mu.Unlock()
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.reports)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

func TestACallerThatGivesUpLeavesThePullToOthers(t *testing.T) {
	images := open(t)
	r := newRegistry(t)
	ref := r.push(t, "ok", newImage(t, "amd64"))
	release := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	var held atomic.Int32
	r.answers(only("/blobs/", func(_ http.ResponseWriter, req *http.Request) bool {
		held.Add(1)
		select {
		case <-release:
		case <-req.Context().Done():
		}
		return false
	}))
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	var told reports
	go func() {
		_, err := images.Ensure(ctx, ref, told.add)
		first <- err
	}()
	eventually(t, "the first to pull", func() bool { return held.Load() > 0 })
	go func() {
		_, err := images.Ensure(t.Context(), ref, told.add)
		second <- err
	}()
	eventually(t, "the second to wait", func() bool { return images.callers(ref) == 2 })
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), ref) {
		t.Errorf("the one that gave up: %v", err)
	}
	// The engine may have handed the layers that it waits for on to the second.
	goOn()
	if err := <-second; err != nil {
		t.Errorf("the other: %v", err)
	}
}

func TestAPullThatFails(t *testing.T) {
	images := open(t)
	images.rateLimitPause = time.Millisecond
	r := newRegistry(t)
	ok := r.push(t, "ok", newImage(t, "amd64"))
	for _, test := range []struct {
		name   string
		ref    string
		answer answer
		kind   error
		texts  []string
	}{
		{name: "no such tag", ref: r.ref("none"), kind: workspace.ErrInvalid, texts: []string{"manifest unknown", "check its name and tag"}},
		{name: "not logged in", ref: ok, answer: wantPassword, kind: workspace.ErrInvalid, texts: []string{`run "docker login ` + r.host + `"`}},
		{name: "forbidden", ref: ok, answer: refuse(http.StatusForbidden, "DENIED", "requested access to the resource is denied"), kind: workspace.ErrInvalid, texts: []string{"denied", "check its name"}},
		{name: "too many requests", ref: ok, answer: refuse(http.StatusTooManyRequests, "TOOMANYREQUESTS", "slow down"), kind: workspace.ErrTransient, texts: []string{"slow down", "try again later"}},
		{name: "too many requests for a layer", ref: ok, answer: only("/blobs/", refuse(http.StatusTooManyRequests, "TOOMANYREQUESTS", "slow down")), kind: workspace.ErrTransient, texts: []string{"slow down"}},
		{name: "internal error", ref: ok, answer: refuse(http.StatusInternalServerError, "UNKNOWN", "oops"), kind: workspace.ErrTransient, texts: []string{"500"}},
		{name: "unavailable", ref: ok, answer: refuse(http.StatusServiceUnavailable, "UNAVAILABLE", "oops"), kind: workspace.ErrTransient, texts: []string{"503"}},
		{name: "a layer is missing", ref: ok, answer: only("/blobs/", refuse(http.StatusNotFound, "BLOB_UNKNOWN", "unknown blob")), kind: workspace.ErrInvalid, texts: []string{"only a part"}},
		{name: "a damaged layer", ref: ok, answer: r.damage, kind: workspace.ErrTransient, texts: []string{"damaged"}},
		{name: "another platform", ref: r.pushIndex(t, "index", "s390x"), kind: workspace.ErrInvalid, texts: []string{"no matching manifest", "platform"}},
		{name: "no registry", ref: "127.0.0.1:1/x:y", kind: workspace.ErrTransient, texts: []string{"connection refused"}},
		{name: "an unknown host", ref: "registry.invalid/x:y", kind: workspace.ErrTransient, texts: []string{"cannot be resolved"}},
		{name: "a page", ref: ok, kind: workspace.ErrTransient, answer: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>log in to the network first</html>"))
			return true
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.answers(test.answer)
			_, err := images.Ensure(t.Context(), test.ref, nil)
			for _, kind := range []error{workspace.ErrInvalid, workspace.ErrTransient, workspace.ErrUnavailable, syscall.ENOSPC} {
				if errors.Is(err, kind) != errors.Is(test.kind, kind) {
					t.Errorf("errors.Is(%v, %v) is %v", err, kind, errors.Is(err, kind))
				}
			}
			for _, text := range append(test.texts, test.ref) {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not hold %q", err, text)
				}
			}
		})
	}
	r.answers(nil)
	if _, err := images.Ensure(t.Context(), ok, nil); err != nil {
		t.Errorf("the pull after all these: %v", err)
	}
}

func TestAPullThatIsPutOffIsTriedOnceMore(t *testing.T) {
	images := open(t)
	images.rateLimitPause = time.Millisecond
	r := newRegistry(t)
	ref := r.push(t, "ok", newImage(t, "amd64"))
	var refused atomic.Bool
	r.answers(only("/manifests/", func(w http.ResponseWriter, req *http.Request) bool {
		// The engine asks with HEAD and then with GET: both are refused once.
		if refused.Load() {
			return false
		}
		refused.Store(req.Method == http.MethodGet)
		return refuse(http.StatusTooManyRequests, "TOOMANYREQUESTS", "slow down")(w, req)
	}))
	var told reports
	if _, err := images.Ensure(t.Context(), ref, told.add); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(told.texts(), "too busy") {
		t.Errorf("it tells\n%s", told.texts())
	}
}

func TestAnImageForAnotherProcessorIsTold(t *testing.T) {
	images := open(t)
	r := newRegistry(t)
	var told reports
	if _, err := images.Ensure(t.Context(), r.push(t, "foreign", newImage(t, "s390x")), told.add); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(told.texts(), "is for s390x") {
		t.Errorf("it tells\n%s", told.texts())
	}
}

func TestPullsWithTheCredentialsOfDockersOwnClient(t *testing.T) {
	images := open(t)
	r := newRegistry(t)
	r.answers(wantPassword)
	answering(t, `{"ServerURL":"`+r.host+`","Username":"`+user+`","Secret":"`+password+`"}`, 0)
	for _, test := range []struct {
		name   string
		config map[string]any
		texts  []string // of the error, none if it works
	}{
		{name: "of the file", config: map[string]any{"auths": map[string]any{r.host: basic(user, password)}}},
		{name: "of the file as a URL", config: map[string]any{"auths": map[string]any{"http://" + r.host + "/v1/": basic(user, password)}}},
		{name: "of a helper", config: map[string]any{"credHelpers": map[string]any{r.host: "berthtest"}}},
		{name: "of a store", config: map[string]any{"credsStore": "berthtest"}},
		{name: "of another registry", config: map[string]any{"auths": map[string]any{"other.example.com": basic(user, password)}}, texts: []string{"there are no credentials for " + r.host}},
		{name: "wrong", config: map[string]any{"auths": map[string]any{r.host: basic(user, "wrong-"+password)}}, texts: []string{"the credentials for " + r.host, "config.json", "do not do"}},
		{name: "of a helper that is missing", config: map[string]any{"credsStore": "berthmissing"}, texts: []string{"docker-credential-berthmissing failed", "no such program"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ref := r.push(t, strings.ReplaceAll(test.name, " ", "-"), newImage(t, "amd64"))
			configure(t, test.config)
			_, err := images.Ensure(t.Context(), ref, nil)
			if len(test.texts) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, workspace.ErrInvalid) {
				t.Errorf("it is %v", err)
			}
			for _, text := range append(test.texts, ref) {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not hold %q", err, text)
				}
			}
			if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("%v tells the password", err)
			}
		})
	}
}

func TestAHelperThatFailsDoesNotHinderAPublicImage(t *testing.T) {
	images := open(t)
	r := newRegistry(t)
	ref := r.push(t, "public", newImage(t, "amd64"))
	configure(t, map[string]any{"credsStore": "berthmissing"})
	if _, err := images.Ensure(t.Context(), ref, nil); err != nil {
		t.Error(err)
	}
}

func TestAnImageThatCannotBeNamed(t *testing.T) {
	images := open(t)
	for _, ref := range []string{"", "Upper/Case", "a b", "../containers/json", "x:y:z", "http://x/y", "x?y=z", "sha256:" + strings.Repeat("0", 64), strings.Repeat("0", 64)} {
		if _, err := images.Ensure(t.Context(), ref, nil); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestAConfigurationThatCannotBeRead(t *testing.T) {
	images := open(t)
	r := newRegistry(t)
	ref := r.push(t, "ok", newImage(t, "amd64"))
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"auths":{"x":{"auth":"`+password+`"`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := images.Ensure(t.Context(), ref, nil)
	if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), filepath.Join(dir, "config.json")) {
		t.Errorf("it is %v", err)
	}
	if err != nil && strings.Contains(err.Error(), password) {
		t.Errorf("%v tells the password", err)
	}
}
