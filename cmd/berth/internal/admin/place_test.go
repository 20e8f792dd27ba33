package admin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestLocate(t *testing.T) {
	long := "/" + strings.Repeat("x", maxPath)
	for what, test := range map[string]struct {
		runtime, data, named string
		want                 []string // NAME is that of the socket
	}{
		"the runtime folder first":       {runtime: "/run/user/1", data: "/data", want: []string{"/run/user/1/berth/NAME", "/data/run/NAME", "/tmp/berth-UID/NAME"}},
		"no runtime folder":              {data: "/data", want: []string{"/data/run/NAME", "/tmp/berth-UID/NAME"}},
		"one that is relative":           {runtime: "run", data: "/data", want: []string{"/data/run/NAME", "/tmp/berth-UID/NAME"}},
		"one that is too long":           {runtime: long, data: "/data", want: []string{"/data/run/NAME", "/tmp/berth-UID/NAME"}},
		"all are too long but the last":  {runtime: long, data: long, want: []string{"/tmp/berth-UID/NAME"}},
		"a path of somebody's":           {runtime: "/run/user/1", data: "/data", named: "/x/y", want: []string{"/x/y"}},
		"the longest path that there is": {named: long[:maxPath], want: []string{long[:maxPath]}},
		"none":                           {runtime: "/run/user/1", data: "/data", named: "none"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", test.runtime)
			t.Setenv("TMPDIR", "/tmp")
			place, err := Locate("/etc/berth.yaml", test.data, test.named)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, path := range test.want {
				want = append(want, strings.NewReplacer("NAME", "admin-HASH.sock", "UID", strconv.Itoa(os.Getuid())).Replace(path))
			}
			var got []string
			for _, path := range place.Paths {
				if dir, file := filepath.Split(path); strings.HasPrefix(file, "admin-") && strings.HasSuffix(file, ".sock") {
					path = dir + "admin-HASH.sock"
				}
				got = append(got, path)
			}
			if !slices.Equal(got, want) || place.Named != (test.named != "") {
				t.Errorf("got %q, named %v, want %q", got, place.Named, want)
			}
			wantShared := "" // the last, if nobody named one
			if n := len(place.Paths); test.named == "" {
				wantShared = place.Paths[n-1]
			}
			if place.Shared != wantShared {
				t.Errorf("shared is %q, want %q", place.Shared, wantShared)
			}
		})
	}
	if _, err := Locate("", "", long); !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "at most 103 bytes, and this one 104") {
		t.Errorf("too long a path: %v", err)
	}
}

// One configuration has one socket, however its file is named, and no other has it.
func TestASocketBelongsToAConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	path := func(file string) string {
		t.Helper()
		place, err := Locate(file, "/data", "")
		if err != nil {
			t.Fatal(err)
		}
		return place.Paths[0]
	}
	one := path("berth.yaml")
	for _, same := range []string{"./berth.yaml", "x/../berth.yaml", filepath.Join(dir, "berth.yaml")} {
		if got := path(same); got != one {
			t.Errorf("%s: %s, want %s", same, got, one)
		}
	}
	for _, other := range []string{"", "other.yaml", "x/berth.yaml"} {
		if path(other) == one {
			t.Errorf("%q has the socket of berth.yaml", other)
		}
	}
}
