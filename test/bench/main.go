// Command bench measures what Berth costs on this machine and prints each figure
// with its ratio to a named baseline, measured in the same run. Run it with
// `make bench`.
//
// The column "plugin" is the processor time that the plugin process spent while
// the row was measured: the proof that the row went through it.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/test/bench/internal/figures"
	"github.com/berth-dev/berth/test/bench/internal/proc"
)

func main() {
	posix.Main() // the in-process baselines may run commands
	if serveMinimal() {
		return
	}
	bin := flag.String("bin", "bin", "folder with the plugin binaries")
	rows := flag.Bool("rows", true, "measure single calls and files")
	docs := flag.String("docs", "", "a `FILE` whose part between the lines "+figures.Begin(figuresName)+" and "+figures.End+" is replaced by the figures of neighbours and of sockets")
	flag.Parse()
	if err := run(context.Background(), *bin, *rows, *docs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// figuresName is that of the figures of neighbours and of sockets in a document.
const figuresName = "neighbours"

func run(ctx context.Context, bin string, rows bool, docs string) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if rows {
		if err := measureAll(ctx, bin, dir); err != nil {
			return err
		}
	}
	var told bytes.Buffer
	out := io.MultiWriter(os.Stdout, &told)
	fmt.Fprintf(out, "\n%s/%s, %d cores, %s. Load average before it began: %s.\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), proc.LoadAverage())
	fmt.Fprint(out, "\nA `stat` of the state provider while another provider of the same host misbehaves:\n\n")
	if err := neighbours(ctx, out, bin, filepath.Join(dir, "neighbours")); err != nil {
		return err
	}
	fmt.Fprint(out, "\nWhat keeps others from a plugin's socket, on the state plugin under go-plugin's own client:\n\n")
	if err := tls(ctx, out, bin, dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nLoad average at the end: %s.\n", proc.LoadAverage())
	if docs == "" {
		return nil
	}
	return figures.Fill(docs, figuresName, told.String())
}

func measureAll(ctx context.Context, bin, dir string) error {
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
