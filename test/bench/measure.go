package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/test/bench/internal/timing"
)

// bench is what every row needs.
type bench struct {
	host *host.Host
	bin  string // folder of the plugin binaries
	dir  string // scratch
	out  io.Writer
}

// work is what is measured: it returns what is to be done afterwards, outside
// the measurement, or nil.
type work func() (after func() error, err error)

// plain is work that leaves nothing to do.
func plain(do func() error) work {
	return func() (func() error, error) { return nil, do() }
}

// measure does the work n times, after some that warm up.
func measure(n int, do work) (timing.Samples, error) {
	taken := make(timing.Samples, 0, n)
	for i := -max(1, n/20); i < n; i++ {
		begin := time.Now()
		after, err := do()
		spent := time.Since(begin)
		if after != nil {
			err = errors.Join(err, after())
		}
		if err != nil {
			return nil, err
		}
		if i >= 0 {
			taken = append(taken, spent)
		}
	}
	slices.Sort(taken)
	return taken, nil
}

// compare measures the work and its baseline and prints a row. The two take
// turns in blocks, so that a change of the machine's pace hits both.
func (b *bench) compare(name, aim, baseline, provider string, n int, do, base work) error {
	var ours, theirs timing.Samples
	before := cpuTime(b.pid(provider))
	const blocks = 4
	for range blocks {
		s, err := measure(n/blocks, do)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		ours = append(ours, s...)
		if s, err = measure(n/blocks, base); err != nil {
			return fmt.Errorf("%s: %s: %w", name, baseline, err)
		}
		theirs = append(theirs, s...)
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	spent := "each start is one"
	if pid := b.pid(provider); pid != 0 && provider != "" {
		spent = fmt.Sprintf("pid %d, %v", pid, (cpuTime(pid) - before).Round(time.Millisecond))
	}
	fmt.Fprintf(b.out, "%s\t%v\t%v\t%.2f\t%s\t%v\t%s\t%s\n", name,
		round(ours.At(50)), round(ours.At(95)), float64(ours.At(50))/float64(theirs.At(50)),
		baseline, round(theirs.At(50)), aim, spent)
	return nil
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// pid is the provider's plugin process, zero while there is none.
func (b *bench) pid(provider string) int {
	for _, p := range b.host.Providers() {
		if p.Name == provider {
			return p.PID
		}
	}
	return 0
}

// clockTick is USER_HZ, which Linux fixes at 100 for everyone.
const clockTick = 10 * time.Millisecond

// cpuTime is the processor time that a process has spent, by /proc.
func cpuTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The fields after the command's name, which may hold anything but ")".
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const utime, stime = 11, 12
	if len(fields) <= stime {
		return 0
	}
	user, _ := strconv.Atoi(fields[utime])
	system, _ := strconv.Atoi(fields[stime])
	return time.Duration(user+system) * clockTick
}

// resetPeak forgets a process's peak of memory.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
