package docker

import (
	"testing"

	"github.com/berth-dev/berth/plugins/docker/internal/runtimes"
)

// What one workspace is given stands in for whichever of image and runtime the
// provider has.
func TestOneImage(t *testing.T) {
	runtime := func(name string) runtimes.Config { return runtimes.Config(`"` + name + `"`) }
	for name, test := range map[string]struct {
		base, changed Config
		image         string
		runtime       string
	}{
		"nothing":           {Config{Image: "a"}, Config{Image: "a"}, "a", ""},
		"another image":     {Config{Image: "a"}, Config{Image: "b"}, "b", ""},
		"image for runtime": {Config{Runtime: runtime("go")}, Config{Runtime: runtime("go"), Image: "b"}, "b", ""},
		"runtime for image": {Config{Image: "a"}, Config{Image: "a", Runtime: runtime("go")}, "", `"go"`},
		"another runtime":   {Config{Runtime: runtime("go")}, Config{Runtime: runtime("rust")}, "", `"rust"`},
		"the default image": {Config{}, Config{Runtime: runtime("go")}, "", `"go"`},
		"no runtime":        {Config{Image: "a"}, Config{Image: "a", Runtime: runtimes.Config("null")}, "a", "null"},
	} {
		got := oneImage(test.base, test.changed)
		if got.Image != test.image || string(got.Runtime) != test.runtime {
			t.Errorf("%s: image %q and runtime %q, want %q and %q", name, got.Image, got.Runtime, test.image, test.runtime)
		}
		if _, err := got.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Both for one workspace is a mistake.
	if _, err := oneImage(Config{Image: "a"}, Config{Image: "b", Runtime: runtime("go")}).check(); err == nil {
		t.Error("both an image and a runtime are taken")
	}
}
