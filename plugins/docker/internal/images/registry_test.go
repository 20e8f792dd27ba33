//go:build docker

package images

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

// answer takes the place of the registry's, and reports whether it did.
type answer func(w http.ResponseWriter, r *http.Request) bool

// testRegistry is a registry on this machine whose answers a test can change.
type testRegistry struct {
	host   string // what image names begin with
	repo   string // the test's own repository
	direct string // the same registry without the changes

	mu     sync.Mutex
	answer answer
	asked  []string
}

func newRegistry(t *testing.T) *testRegistry {
	t.Helper()
	store := registry.New(registry.Logger(hclog.NewNullLogger().StandardLogger(nil)))
	direct := httptest.NewServer(store)
	t.Cleanup(direct.Close)
	r := &testRegistry{direct: strings.TrimPrefix(direct.URL, "http://"), repo: enginetest.Unique(t)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, req.Method+" "+req.URL.Path)
		change := r.answer
		r.mu.Unlock()
		if change == nil || !change(w, req) {
			store.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *testRegistry) answers(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = a
}

// count is how many requests there were whose text holds part.
func (r *testRegistry) count(part string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, request := range r.asked {
		if strings.Contains(request, part) {
			n++
		}
	}
	return n
}

// ref is the name of an image in the test's repository.
func (r *testRegistry) ref(tag string) string { return r.host + "/" + r.repo + ":" + tag }

const layerSize = 1 << 20

// newImage makes an image of two layers for a platform.
func newImage(t *testing.T, architecture string) v1.Image {
	t.Helper()
	made, err := random.Image(layerSize, 2)
	if err != nil {
		t.Fatal(err)
	}
	file, err := made.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", architecture
	if made, err = mutate.ConfigFile(made, file); err != nil {
		t.Fatal(err)
	}
	return made
}

// push puts an image into the registry, and returns its reference.
func (r *testRegistry) push(t *testing.T, tag string, img v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(r.direct + "/" + r.repo + ":" + tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	return r.ref(tag)
}

// pushIndex puts an image with a list of platforms into the registry.
func (r *testRegistry) pushIndex(t *testing.T, tag string, architectures ...string) string {
	t.Helper()
	ref, err := name.ParseReference(r.direct + "/" + r.repo + ":" + tag)
	if err != nil {
		t.Fatal(err)
	}
	var index v1.ImageIndex
	if index, err = random.Index(1, 1, 0); err != nil {
		t.Fatal(err)
	}
	for _, architecture := range architectures {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: newImage(t, architecture), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	return r.ref(tag)
}

// wantPassword answers only those who know it.
func wantPassword(w http.ResponseWriter, r *http.Request) bool {
	gotUser, gotPassword, ok := r.BasicAuth()
	if ok && gotUser == user && gotPassword == password {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	refuse(http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")(w, r)
	return true
}

// refuse answers with an error as registries do.
func refuse(status int, code, text string) answer {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, text)
		return true
	}
}

// only changes the answers to requests whose path holds part.
func only(part string, a answer) answer {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return strings.Contains(r.URL.Path, part) && a(w, r)
	}
}

// damage answers with the registry's own answer, of which one byte differs.
func (r *testRegistry) damage(w http.ResponseWriter, req *http.Request) bool {
	if req.Method != http.MethodGet {
		return false
	}
	resp, err := http.Get("http://" + r.direct + req.URL.Path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || len(content) < layerSize {
		return false
	}
	content[len(content)/2] ^= 1
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.Header().Set("Docker-Content-Digest", resp.Header.Get("Docker-Content-Digest"))
	_, _ = io.Copy(w, bytes.NewReader(content))
	return true
}

func open(t *testing.T) *Images {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	eng, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eng.Close() })
	return New(eng)
}
