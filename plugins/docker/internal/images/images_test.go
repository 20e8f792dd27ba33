package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	imageRef = "registry.example.com/team/image:tag"
	there    = `{"Id":"sha256:1","Architecture":"amd64","RepoTags":["` + imageRef + `"]}`
)

// fakeEngine answers a pull as a test says.
type fakeEngine struct {
	pull http.HandlerFunc

	mu     sync.Mutex
	exists bool // the image
	pulls  int
}

func (f *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	exists := f.exists
	f.mu.Unlock()
	w.Header().Set("Api-Version", "1.41")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/images/create"):
		f.mu.Lock()
		f.pulls++
		f.mu.Unlock()
		f.pull(w, r)
	case strings.HasSuffix(r.URL.Path, "/json") && !exists:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"message":"No such image"}`)
	case strings.HasSuffix(r.URL.Path, "/json"):
		fmt.Fprint(w, there)
	case strings.HasSuffix(r.URL.Path, "/version"):
		fmt.Fprint(w, `{"Arch":"amd64"}`)
	}
}

// arrives makes the image be there.
func (f *fakeEngine) arrives() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exists = true
}

// openFake opens the images of a fake engine.
func openFake(t *testing.T, f *fakeEngine) *Images {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth") //nolint:usetesting // short: it is for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(f)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "s"))
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	eng, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	images := New(eng)
	images.rateLimitPause = time.Millisecond
	return images
}

// says streams lines, as an engine does in a pull.
func says(lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range lines {
			fmt.Fprint(w, line, "\r\n")
			w.(http.Flusher).Flush()
		}
	}
}

const begins = `{"status":"Pulling from team/image","id":"tag"}`

func TestWhatGoesWrongInAPull(t *testing.T) {
	for _, test := range []struct {
		name    string
		pull    http.HandlerFunc
		kind    error
		texts   []string
		pulls   int           // one if zero
		silence time.Duration // a minute if zero: a busy machine is silent for a while
	}{
		{name: "a full disk", pull: says(begins, `{"errorDetail":{"message":"write /var/lib/docker/tmp/x: no space left on device"},"error":"write"}`), kind: syscall.ENOSPC, texts: []string{"make room on the engine's disk"}},
		{name: "a full disk, told at once", kind: syscall.ENOSPC, texts: []string{"make room"}, pull: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"message":"no space left on device"}`)
		}},
		{name: "an error without details", pull: says(begins, `{"error":"manifest unknown"}`), kind: workspace.ErrInvalid, texts: []string{"manifest unknown"}},
		{name: "an error without a reason", pull: says(begins, `{"errorDetail":{}}`), kind: workspace.ErrTransient, texts: []string{"no reason"}},
		{name: "an error of a new kind", pull: says(begins, `{"errorDetail":{"message":"the moon is in the way"}}`), kind: workspace.ErrTransient, texts: []string{"the moon"}},
		{name: "too many requests", pull: says(begins, `{"errorDetail":{"message":"toomanyrequests: slowly"}}`), kind: workspace.ErrTransient, texts: []string{"try again later"}, pulls: 2},
		{name: "a certificate", pull: says(`{"errorDetail":{"message":"tls: failed to verify certificate: x509: certificate signed by unknown authority"}}`), kind: workspace.ErrInvalid, texts: []string{"certs.d"}},
		{name: "no TLS", pull: says(`{"errorDetail":{"message":"http: server gave HTTP response to HTTPS client"}}`), kind: workspace.ErrInvalid, texts: []string{"insecure-registries"}},
		{name: "an end before the image is there", pull: says(begins), kind: workspace.ErrTransient, texts: []string{"does not have it"}},
		{name: "nothing at all", pull: says(), kind: workspace.ErrTransient, texts: []string{"does not have it"}},
		{name: "nonsense", pull: says(begins, "<html>"), kind: workspace.ErrTransient, texts: []string{"no message of a pull"}},
		{name: "a flood", pull: says(begins, `{"status":"`+strings.Repeat("x", messageLimit)+`"}`), kind: workspace.ErrTransient, texts: []string{"longer than"}},
		{name: "an engine that dies", kind: workspace.ErrTransient, texts: []string{"docker engine at unix://"}, pull: func(w http.ResponseWriter, r *http.Request) {
			says(begins)(w, r)
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		}},
		{name: "silence", silence: 200 * time.Millisecond, kind: workspace.ErrTransient, texts: []string{"has not answered for"}, pull: func(w http.ResponseWriter, r *http.Request) {
			says(begins)(w, r)
			<-r.Context().Done()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fakeEngine{pull: test.pull}
			images := openFake(t, f)
			images.silence = cmp.Or(test.silence, time.Minute)
			_, err := images.Ensure(t.Context(), imageRef, nil)
			for _, kind := range []error{workspace.ErrInvalid, workspace.ErrTransient, workspace.ErrUnavailable, syscall.ENOSPC} {
				if errors.Is(err, kind) != errors.Is(test.kind, kind) {
					t.Errorf("errors.Is(%v, %v) is %v", err, kind, errors.Is(err, kind))
				}
			}
			for _, text := range append(test.texts, imageRef) {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not hold %q", err, text)
				}
			}
			if want := max(test.pulls, 1); f.pulls != want {
				t.Errorf("it pulled %d times", f.pulls)
			}
		})
	}
}

func TestAnErrorThatTellsSecretsIsRedacted(t *testing.T) {
	f := &fakeEngine{}
	f.pull = func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, `{"message":"unauthorized: ishmael:%s %s"}`, password, r.Header.Get("X-Registry-Auth"))
	}
	images := openFake(t, f)
	configure(t, map[string]any{"auths": map[string]any{"registry.example.com": basic(user, password)}})
	_, err := images.Ensure(t.Context(), imageRef, nil)
	if err == nil || !strings.Contains(err.Error(), "[redacted]") || !strings.Contains(err.Error(), "docker login registry.example.com") {
		t.Fatalf("it is %v", err)
	}
	f2, credErr := credentialsFor(t.Context(), "registry.example.com")
	if credErr != nil {
		t.Fatal(credErr)
	}
	for _, secret := range []string{password, f2.header} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%v tells %q", err, secret)
		}
	}
}

func TestAPullThatIsGivenUpEndsAtOnce(t *testing.T) {
	f := &fakeEngine{pull: func(w http.ResponseWriter, r *http.Request) {
		says(begins)(w, r)
		<-r.Context().Done()
	}}
	images := openFake(t, f)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the user has gone")
	_, err := images.Ensure(ctx, imageRef, func(sdk.Progress) { cancel(cause) })
	if !errors.Is(err, cause) || errors.Is(err, workspace.ErrTransient) {
		t.Errorf("it is %v", err)
	}
	if len(images.pulls) != 0 {
		t.Error("the pull is kept")
	}
}

func TestAnImageThatIsThereIsNotPulled(t *testing.T) {
	f := &fakeEngine{}
	f.arrives()
	found, err := openFake(t, f).Ensure(t.Context(), imageRef, nil)
	if err != nil || found.ID != "sha256:1" || f.pulls != 0 {
		t.Errorf("%s, %v, %d pulls", found.ID, err, f.pulls)
	}
}

func TestProgressAddsUpAndNeverGoesBack(t *testing.T) {
	f := &fakeEngine{}
	f.pull = func(w http.ResponseWriter, r *http.Request) {
		says(
			begins,
			`{"status":"Already exists","progressDetail":{},"id":"0"}`,
			`{"status":"Pulling fs layer","progressDetail":{},"id":"a"}`,
			`{"status":"Pulling fs layer","progressDetail":{},"id":"b"}`,
			`{"status":"Downloading","progressDetail":{"current":50,"total":100},"id":"a"}`,
			`{"status":"Downloading","progressDetail":{"current":10,"total":100},"id":"a"}`, // it begins again
			`{"status":"Downloading","progressDetail":{"current":100,"total":100},"id":"a"}`,
			`{"status":"Download complete","progressDetail":{},"id":"a"}`,
			`{"status":"Downloading","progressDetail":{"current":500,"total":400},"id":"b"}`, // more than it is
			`{"status":"Verifying Checksum","progressDetail":{},"id":"b"}`,
			`{"status":"Extracting","progressDetail":{"current":1,"total":400},"id":"b"}`,
			`{"status":"Pull complete","progressDetail":{},"id":"b"}`,
			`{"status":"Digest: sha256:1"}`,
		)(w, r)
		f.arrives()
	}
	images := openFake(t, f)
	var told []sdk.Progress
	if _, err := images.Ensure(t.Context(), imageRef, func(p sdk.Progress) { told = append(told, p) }); err != nil {
		t.Fatal(err)
	}
	var done int64
	for _, p := range told {
		if p.Text != "pulling "+imageRef || p.Done < done || p.Done > p.Total {
			t.Errorf("after %d: %+v", done, p)
		}
		done = p.Done
	}
	if last := told[len(told)-1]; last.Done != 500 || last.Total != 500 || last.Unit != "bytes" {
		t.Errorf("in the end it is %+v", last)
	}
}

func TestProgressIsNotToldTooOften(t *testing.T) {
	p := newProgress("x")
	now := time.Now()
	told := 0
	for i := range int64(10_000) {
		_, worth := p.add(message{ID: "a", Status: "Downloading", ProgressDetail: struct {
			Current int64 `json:"current"`
			Total   int64 `json:"total"`
		}{i, 100_000}}, now.Add(time.Duration(i)*time.Millisecond))
		if worth {
			told++
		}
	}
	if told < 50 || told > 150 { // in ten seconds
		t.Errorf("it was told %d times", told)
	}
	for i := range 10 * layersLimit {
		p.add(message{ID: strconv.Itoa(i), Status: "Downloading"}, now)
	}
	if len(p.layers) > layersLimit {
		t.Errorf("%d layers are remembered", len(p.layers))
	}
}
