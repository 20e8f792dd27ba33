// Command bench measures what Berth costs on this machine and prints each figure
// with its ratio to a named baseline, measured in the same run. Run it with
// `make bench`.
//
// The column "plugin" is the processor time that the plugin process spent while
// the row was measured: the proof that the row went through it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

func main() {
	posix.Main() // the in-process baselines may run commands
	if serveMinimal() {
		return
	}
	bin := flag.String("bin", "bin", "folder with the plugin binaries")
	flag.Parse()
	if err := measureAll(context.Background(), *bin); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measureAll(ctx context.Context, bin string) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h, err := host.New(host.Config{
		PluginDirs: []string{bin},
		DataDir:    dir,
		Providers:  map[string]host.Provider{"state": {}, "local": {}},
	})
	if err != nil {
		return err
	}
	defer h.Close()

	fmt.Printf("%s/%s, %d cores, %s\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprintln(out, "work\tp50\tp95\tratio\tbaseline\tits p50\taim\tplugin")
	for _, row := range []func(context.Context, *bench) error{stat, noop, start} {
		if err := row(ctx, &bench{host: h, bin: bin, dir: dir, out: out}); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	fmt.Fprintln(out, "file\tMB/s\tratio\tbaseline\tits MB/s\thost peak\tplugin peak\tplugin")
	return transfers(ctx, &bench{host: h, bin: bin, dir: dir, out: out})
}
