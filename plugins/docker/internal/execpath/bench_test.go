//go:build docker

package execpath_test

import (
	"io"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
)

func open(b *testing.B) *execpath.Workspace {
	b.Helper()
	p, err := plugin(b, box{image: "busybox"}).New(b.Context(), config{}, sdk.Env{})
	if err != nil {
		b.Fatal(err)
	}
	ws, err := p.Create(b.Context(), sdk.CreateRequest{Token: "one"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ws.(*execpath.Workspace).Close() })
	return ws.(*execpath.Workspace)
}

func BenchmarkCommand(b *testing.B) {
	ws := open(b)
	for b.Loop() {
		p, err := ws.Start(b.Context(), sdk.Command{Args: []string{"true"}})
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, p.Stdout())
		if code, err := p.Wait(); code != 0 || err != nil {
			b.Fatal(code, err)
		}
		_ = p.Close()
	}
}

func BenchmarkStat(b *testing.B) {
	ws := open(b)
	for b.Loop() {
		if _, err := ws.Stat(b.Context(), "."); err != nil {
			b.Fatal(err)
		}
	}
}
