package conformance_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

// A provider's test is one call. What its author can do to a workspace from
// outside is given as hooks: here, a second host.
func ExampleTest() {
	contract := func(t *testing.T) {
		store := "file:" + filepath.Join(t.TempDir(), "state.db")
		open := func(t testing.TB) workspace.Host {
			h, err := host.New(host.Config{Providers: map[string]host.Provider{
				"acme": {InProcess: state.Plugin("test"), Config: map[string]any{"store": store}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = h.Close() })
			return h
		}
		conformance.Test(t, conformance.Options{Host: open(t), Provider: "acme", OtherHost: open})
	}
	_ = contract // go test runs it as TestContract

	fmt.Println(strings.Join(conformance.Rules(), " "))
	// Output: L1 L2 L3 L4 L5 L6 L7 L8 C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 B3
}
