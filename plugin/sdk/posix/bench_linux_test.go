package posix_test

import (
	"os/exec"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
)

// BenchmarkNoop is a command that does nothing, with its outputs read to their
// end: through a supervisor that is used again, and by fork and exec as in
// os/exec, the baseline.
func BenchmarkNoop(b *testing.B) {
	b.Run("supervisor", func(b *testing.B) {
		ws := openWorkspace(b)
		run(b, ws, sdk.Command{Args: []string{"/bin/true"}})
		for b.Loop() {
			run(b, ws, sdk.Command{Args: []string{"/bin/true"}})
		}
	})
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			var stdout, stderr discard
			cmd := exec.Command("/bin/true")
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type discard struct{}

func (*discard) Write(p []byte) (int, error) { return len(p), nil }
