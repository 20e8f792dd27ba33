// Command gateway measures `berth serve` beside sandboxd, the service whose protocol
// it speaks: with the same client (see client.py) and by plain HTTP, in one run on one
// engine with one image. Then it puts the gateway under load. Run it with
// `make bench-gateway`.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/berth-dev/berth/test/bench/internal/figures"
	"github.com/berth-dev/berth/test/bench/internal/proc"
)

// figuresName is that of these figures in a document.
const figuresName = "gateway"

func main() {
	bin := flag.String("bin", "bin", "folder with berth and the plugin binaries")
	image := flag.String("image", "berth-test/busybox", "image of the workspaces, with a shell")
	duration := flag.Duration("load", time.Minute, "how long the load lasts; 0 leaves it out")
	rows := flag.Bool("rows", true, "measure the single calls")
	docs := flag.String("docs", "", "a `FILE` whose part between the lines "+figures.Begin(figuresName)+" and "+figures.End+" is replaced by the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var told bytes.Buffer
	err := run(ctx, io.MultiWriter(os.Stdout, &told), *bin, *image, *rows, load{sessions: 200, callers: 20, duration: *duration})
	if err == nil && *docs != "" {
		err = figures.Fill(*docs, figuresName, told.String())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, bin, image string, rows bool, l load) (err error) {
	busy := proc.LoadAverage()
	b, err := open(ctx, bin, image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }() //nolint:contextcheck // what was made is removed, though the run was cancelled
	version, err := b.engine.ServerVersion(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s/%s, %d cores, %s, Docker Engine %s. Load average before it began: %s.\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), version.Version, busy)
	if rows {
		if err := errors.Join(b.printClient(ctx, out), b.printWire(ctx, out)); err != nil {
			return err
		}
	}
	defer func() { fmt.Fprintf(out, "\nLoad average at the end: %s.\n", proc.LoadAverage()) }()
	if l.duration == 0 {
		return nil
	}
	report, err := b.endure(ctx, l)
	if err != nil {
		return fmt.Errorf("under load: %w", err)
	}
	report.print(out)
	return report.failed
}
