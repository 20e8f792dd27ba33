package execpath

import (
	"archive/tar"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

// unpacker is an engine with one flat directory, /w, whose file system is not as
// others are.
type unpacker struct {
	files   map[string]string
	links   bool // a file may have several names
	removes bool // what is unpacked takes the place of what was there
	puts    [][]string
}

func (u *unpacker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.41")
	name := path.Base(r.URL.Query().Get("path"))
	content, found := u.files[name]
	switch {
	case !strings.HasSuffix(r.URL.Path, "/archive"):
		fmt.Fprint(w, `{"State":{"Running":true}}`)
	case r.Method == http.MethodPut:
		if err := u.unpack(r.Body); err != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_ = json.NewEncoder(w).Encode(map[string]string{"message": "Error processing tar file(exit status 1): " + err.Error()})
		}
	case name != "w" && !found:
		w.WriteHeader(http.StatusNotFound)
	default:
		stat := container.PathStat{Name: name, Size: int64(len(content)), Mode: 0o644}
		if name == "w" {
			stat.Mode = fs.ModeDir | 0o755
		}
		text, _ := json.Marshal(stat)
		w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString(text))
		if r.Method == http.MethodGet {
			archive := tar.NewWriter(w)
			_ = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: stat.Size, Mode: 0o644})
			_, _ = io.WriteString(archive, content)
			_ = archive.Close()
		}
	}
}

func (u *unpacker) unpack(body io.Reader) error {
	archive := tar.NewReader(body)
	var entries []string
	defer func() { u.puts = append(u.puts, entries) }()
	for {
		header, err := archive.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		entries = append(entries, string(header.Typeflag)+" "+header.Name)
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if !u.removes {
			continue
		}
		delete(u.files, header.Name)
		if header.Typeflag == tar.TypeReg {
			u.files[header.Name] = string(content)
			continue
		}
		target, found := u.files[header.Linkname]
		switch {
		case !found:
			return fmt.Errorf("link /w/%s /w/%s: no such file or directory", header.Linkname, header.Name)
		case !u.links:
			return fmt.Errorf("link /w/%s /w/%s: operation not permitted", header.Linkname, header.Name)
		}
		u.files[header.Name] = target
	}
}

func openUnpacker(t *testing.T, u *unpacker) *archive {
	t.Helper()
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+strings.TrimPrefix(server.URL, "http://"))
	e, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return &archive{w: &Workspace{config: Config{Engine: e, ContainerID: "c", WorkingDir: "/w"}}}
}

// TestAFileIsWrittenWhereItHasButOneName has a file system that lets no file have
// several.
func TestAFileIsWrittenWhereItHasButOneName(t *testing.T) {
	for _, links := range []bool{true, false} {
		u := &unpacker{files: map[string]string{"file": "old"}, links: links, removes: true}
		a := openUnpacker(t, u)
		for _, name := range []string{"file", "new"} {
			w, err := a.Create(t.Context(), name, workspace.WriteOptions{})
			if err == nil {
				_, err = io.WriteString(w, "content")
			}
			if err := errors.Join(err, w.Close()); err != nil {
				t.Errorf("links %v: write %s: %v", links, name, err)
			}
			if got := u.files[name]; got != "content" {
				t.Errorf("links %v: %s holds %q", links, name, got)
			}
		}
		if len(u.files) != 2 {
			t.Errorf("links %v: there is %q", links, u.files)
		}
		if direct := slices.Contains(u.puts[len(u.puts)-1], "0 new"); direct == links {
			t.Errorf("links %v: the last archive was %q", links, u.puts[len(u.puts)-1])
		}
	}
}

// TestARemovalThatDoesNothingIsSaid has an engine that keeps what is there.
func TestARemovalThatDoesNothingIsSaid(t *testing.T) {
	a := openUnpacker(t, &unpacker{files: map[string]string{"file": "old"}})
	if err := a.Remove(t.Context(), "file"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("it is %v, want %v", err, errors.ErrUnsupported)
	}
}
