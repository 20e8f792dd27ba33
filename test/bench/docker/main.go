// Command docker measures what the docker provider costs on this machine beside
// two peers, in one run on one engine: the engine's own API called directly, and
// the predecessor in Python (see predecessor.py). Run it with
// `make bench-docker`.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/test/bench/internal/timing"
	"github.com/berth-dev/berth/test/internal/predecessor"
)

func main() {
	bin := flag.String("bin", "bin", "folder with the plugin binaries")
	image := flag.String("image", "berth-test/busybox", "image of the workspaces, with a shell")
	python := flag.Bool("predecessor", true, "measure pydantic-ai-backend as well (needs python3 with venv, and PyPI)")
	flag.Parse()
	if err := run(context.Background(), *bin, *image, *python); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, image string, python bool) (err error) {
	b, err := open(ctx, bin, image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }() //nolint:contextcheck // what was made is removed, though the run was cancelled
	peer := map[string]timing.Samples{}
	if python {
		if peer, err = predecessorWork(ctx, image); err != nil {
			return err
		}
	}
	version, err := b.engine.ServerVersion(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s/%s, %d cores, %s, Docker Engine %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), version.Version)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "work\tp50\tp95\tengine\tours/engine\tpredecessor\tpredecessor/ours\taim")
	for _, r := range rows() {
		ours, engine, err := b.measure(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		printRow(out, r, ours, engine, peer[r.name])
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return b.report(ctx)
}

// printRow prints one row: ours, and each peer that did the same work.
func printRow(out *tabwriter.Writer, r row, ours, engine, peer timing.Samples) {
	cells := [4]string{"–", "–", "–", "–"}
	if len(engine) > 0 {
		cells[0] = timing.Rounded(engine.At(50)).String()
		cells[1] = fmt.Sprintf("%.2f", float64(ours.At(50))/float64(engine.At(50)))
	}
	if len(peer) > 0 {
		cells[2] = timing.Rounded(peer.At(50)).String()
		cells[3] = fmt.Sprintf("%.1f", float64(peer.At(50))/float64(ours.At(50)))
	}
	fmt.Fprintf(out, "%s\t%v\t%v\t%s\t%s\t%s\t%s\t%s\n", r.name, timing.Rounded(ours.At(50)), timing.Rounded(ours.At(95)),
		cells[0], cells[1], cells[2], cells[3], r.aim)
}

//go:embed predecessor.py
var predecessorScript string

// predecessorWork measures the same work in Python.
func predecessorWork(ctx context.Context, image string) (map[string]timing.Samples, error) {
	fmt.Fprintln(os.Stderr, "measuring the predecessor, for a minute and a half, after installing it if need be")
	python, err := predecessor.Install(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, python, "-c", predecessorScript, image)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the predecessor: %w", err)
	}
	var seconds map[string][]float64
	if err := json.Unmarshal(out, &seconds); err != nil {
		return nil, fmt.Errorf("the predecessor's figures: %w", err)
	}
	figures := make(map[string]timing.Samples, len(seconds))
	for name, list := range seconds {
		for _, s := range list {
			figures[name] = append(figures[name], time.Duration(s*float64(time.Second)))
		}
		slices.Sort(figures[name])
	}
	return figures, nil
}

// hostConfig is the host under measurement.
func hostConfig(bin, dir, image string) host.Config {
	return host.Config{
		PluginDirs: []string{bin},
		DataDir:    dir,
		Providers:  map[string]host.Provider{provider: {Config: map[string]any{"image": image}}},
	}
}
