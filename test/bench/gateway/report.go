package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-dev/berth/test/bench/internal/timing"
)

// printClient measures what the predecessor's client has of each service, and prints it.
func (b *bench) printClient(ctx context.Context, out io.Writer) error {
	fmt.Fprint(out, "\nThe same client, `SandboxdWorkspace`:\n\n")
	fmt.Fprintln(out, "| work | berth p50 | p95 | sandboxd p50 | p95 | sandboxd / berth | aim |\n|---|---|---|---|---|---|---|")
	for _, r := range clientRows() {
		by, err := b.measure(ctx, r, []string{columnBerth, columnSandboxd})
		if err != nil {
			return err
		}
		ours, theirs := by[columnBerth], by[columnSandboxd]
		cells := []string{r.name, timing.Text(ours.At(50)) + ours.note, timing.Text(ours.At(95)), timing.Text(theirs.At(50)) + theirs.note, timing.Text(theirs.At(95)), ratio(theirs, ours), aim(r, ours)}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
	return nil
}

// printWire measures the same by plain HTTP, and what the gateway adds to a host.
func (b *bench) printWire(ctx context.Context, out io.Writer) error {
	fmt.Fprint(out, "\nPlain HTTP over a kept connection, beside the calls of a host in Go on the same provider without a gateway:\n\n")
	fmt.Fprintln(out, "| work | host p50 | berth p50 | p95 | the gateway adds | sandboxd p50 | p95 | sandboxd / berth |\n|---|---|---|---|---|---|---|---|")
	for _, r := range wireRows() {
		by, err := b.measure(ctx, r, []string{columnHost, columnBerth, columnSandboxd})
		if err != nil {
			return err
		}
		own, ours, theirs := by[columnHost], by[columnBerth], by[columnSandboxd]
		cells := []string{r.name, timing.Text(own.At(50)), timing.Text(ours.At(50)), timing.Text(ours.At(95)), added(ours.At(50) - own.At(50))}
		if len(theirs.Samples) > 0 {
			cells = append(cells, timing.Text(theirs.At(50)), timing.Text(theirs.At(95)), ratio(theirs, ours))
		} else {
			cells = append(cells, "not natively", "–", "–")
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
	return nil
}

func ratio(of, to result) string {
	r := float64(of.At(50)) / float64(to.At(50))
	if r < 10 {
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.0f", r)
}

// aim tells what was aimed at, and whether it was missed.
func aim(r row, ours result) string {
	told := fmt.Sprintf("%g ms", float64(r.aim)/float64(time.Millisecond))
	switch {
	case r.aim == 0:
		return ""
	case ours.At(50) > r.aim:
		return told + ", **missed**"
	default:
		return told
	}
}

// added is what one median is over another, of which it is a part: less than nothing
// is the machine's noise.
func added(d time.Duration) string {
	if d <= 0 {
		return "nothing measurable"
	}
	return timing.Text(d)
}
