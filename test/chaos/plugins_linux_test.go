package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/shared/wire"
)

// versions is how many files there are of each plugin to swap between.
const versions = 2

// plugins is the folder that the host looks into, in which each provider has a plugin
// of its own name.
type plugins struct{ dir, store string }

// newPlugins makes all versions of all plugins first: a process that is forked while
// a file is written would hold it open, and it could not be executed.
func newPlugins(t *testing.T, of map[string]string) plugins {
	t.Helper()
	p := plugins{t.TempDir(), t.TempDir()}
	for provider, plugin := range of {
		binary, err := os.ReadFile(binaryOf(plugin))
		if err != nil {
			t.Fatal(err)
		}
		for v := range versions {
			data := append(binary[:len(binary):len(binary)], fmt.Sprintf("\nversion %d", v)...)
			if err := os.WriteFile(p.version(provider, v), data, 0o755); err != nil { //nolint:gosec // it is to be executed
				t.Fatal(err)
			}
		}
		p.install(t, provider, 0)
	}
	return p
}

func (p plugins) version(provider string, v int) string {
	return filepath.Join(p.store, fmt.Sprintf("%s-%d", provider, v))
}

// install renames a version into place.
func (p plugins) install(t testing.TB, provider string, v int) {
	t.Helper()
	path := filepath.Join(p.dir, wire.BinaryPrefix+provider)
	if err := os.Link(p.version(provider, v), path+".new"); err != nil {
		t.Fatal(err)
	}
	// Of two names of one file a rename would leave both.
	_ = os.Remove(path)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
