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
	"strings"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "folder with berth and the plugin binaries")
	image := flag.String("image", "berth-test/busybox", "image of the workspaces, with a shell")
	duration := flag.Duration("load", time.Minute, "how long the load lasts; 0 leaves it out")
	rows := flag.Bool("rows", true, "measure the single calls")
	docs := flag.String("docs", "", "a `FILE` whose part between the lines "+begin+" and "+end+" is replaced by the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var figures bytes.Buffer
	err := run(ctx, io.MultiWriter(os.Stdout, &figures), *bin, *image, *rows, load{sessions: 200, callers: 20, duration: *duration})
	if err == nil && *docs != "" {
		err = fill(*docs, figures.String())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, bin, image string, rows bool, l load) (err error) {
	busy := loadAverage()
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
	defer func() { fmt.Fprintf(out, "\nLoad average at the end: %s.\n", loadAverage()) }()
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

// loadAverage is how many processes want to run, as Linux counts them over a minute.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// The lines of a document between which figures stand.
const (
	begin = "<!-- figures: gateway -->"
	end   = "<!-- end of figures -->"
)

// fill puts figures into a document.
func fill(path, figures string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(data), begin+"\n")
	_, after, ended := strings.Cut(rest, end+"\n")
	if !found || !ended {
		return fmt.Errorf("%s has no lines %s and %s", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+"\n\n"+strings.TrimSpace(figures)+"\n\n"+end+"\n"+after), 0o644)
}
