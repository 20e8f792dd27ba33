package testimages

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"runtime"

	"github.com/berth-dev/berth/plugin/sdk/conformance"
)

func scratch() recipe {
	return recipe{
		name:    "scratch",
		sources: []string{"scratch.go"},
		content: buildProbe,
		write:   writeScratch,
		// Not ENTRYPOINT: a test gives its own command. Without either the engine
		// refuses to make a container.
		changes: []string{"USER 1000", `CMD ["/probe", "help"]`},
	}
}

// buildProbe builds the probe each time: the toolchain's cache makes that quick,
// and the image follows the probe's sources.
func buildProbe(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "berth-test-probe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, err := conformance.BuildProbe(ctx, dir, "linux", runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(binary)
}

func writeScratch(_ context.Context, w io.Writer, probe []byte) error {
	t := archive{tar.NewWriter(w)}
	t.file("probe", 0o755, probe)
	return t.Close()
}
