//go:build docker

package execpath_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestContract is the whole suite in the kinds of container that the provider's own
// tests, which have the others, do not run without a guest. All at once: much of what
// they do is waiting.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]box{
		"busybox":          {image: "busybox"},
		"debian as a user": {image: "debian", user: "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hosttest.New(t, map[string]hosttest.Registrar{"execpath": plugin(t, b)})
			report := conformance.Test(t, conformance.Options{Host: h, Provider: "execpath"})
			if n := report.Count(conformance.Checked); n < 90 {
				t.Errorf("%d checks were made", n)
			}
		})
	}
}

// TestFilesWithoutAShell is what archive calls can do.
func TestFilesWithoutAShell(t *testing.T) {
	t.Parallel()
	h := hosttest.New(t, map[string]hosttest.Registrar{"execpath": plugin(t, box{image: "scratch"})})
	report := conformance.Test(t, conformance.Options{Host: h, Provider: "execpath"})
	if n := report.Count(conformance.Checked); n < 30 {
		t.Errorf("%d checks were made", n)
	}
}
