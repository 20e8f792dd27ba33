package host

import (
	"testing"

	"github.com/berth-dev/berth/host/internal/catalog"
)

func TestCompanionsLieBesideTheirPlugin(t *testing.T) {
	for name, good := range map[string]bool{
		"helper": true, "berth-guest-linux-amd64": true, "a b": true,
		"": false, ".": false, "..": false, "../x": false, "/x": false, "a/b": false, `a\b`: false, "a\x00": false, ".hidden": false, "c:x": false,
		catalog.BinaryName("acme"): false,
	} {
		if err := validateCompanions("acme", []string{"first", name}); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
