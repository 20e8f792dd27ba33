// Command summary reads what `go test -json` wrote, one file a run, names what
// failed, what was skipped and why, and what took longest, and ends with one line,
// N passed, N failed, N skipped. It fails if a test failed, if none ran, or if one
// was skipped in every run in which it appeared: a test that is skipped both as
// root and as an unprivileged user checks nothing.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// event is what we read of one line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // instead of Package, while building
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// slowest is how many packages are named that took longest.
const slowest = 10

// duration is what one package took in one run.
type duration struct {
	name    string
	seconds float64
}

// tally counts the outcomes of one test over all runs, and keeps what it printed
// in those in which it failed or was skipped.
type tally struct {
	passed, failed, skipped int
	output, failures, skips strings.Builder
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: summary FILE.json…")
		os.Exit(2)
	}
	tests := map[string]*tally{}
	var took []duration
	for _, file := range os.Args[1:] {
		durations, err := read(file, tests)
		if err != nil {
			fmt.Fprintln(os.Stderr, "summary:", err)
			os.Exit(2)
		}
		took = append(took, durations...)
	}
	slices.SortFunc(took, func(a, b duration) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, d := range took[:min(slowest, len(took))] {
		fmt.Printf("%4.0f s: %s\n", d.seconds, d.name)
	}
	if !report(tests) {
		os.Exit(1)
	}
}

// read adds what a file tells of tests, and returns what packages took.
func read(file string, tests map[string]*tally) (took []duration, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if e.Test == "" && (e.Action == "pass" || e.Action == "fail") {
			took = append(took, duration{filepath.Base(file) + " " + e.Package, e.Elapsed})
		}
		name := strings.TrimSpace(cmp.Or(e.Package, e.ImportPath) + " " + e.Test)
		t := tests[name]
		if t == nil {
			t = &tally{}
			tests[name] = t
		}
		switch {
		case e.Action == "output" || e.Action == "build-output":
			t.output.WriteString(e.Output)
		case e.Action == "fail":
			// A package that fails without a failed test (a build error, a panic,
			// a leak found by TestMain) counts under its own name.
			t.failed++
			t.failures.WriteString(t.output.String())
			t.output.Reset()
		case e.Test == "": // a package's own pass is no test
		case e.Action == "pass":
			t.passed++
			t.output.Reset()
		case e.Action == "skip":
			t.skipped++
			t.skips.WriteString(t.output.String())
			t.output.Reset()
		}
	}
	return took, lines.Err()
}

func report(tests map[string]*tally) bool {
	var passed, failures, skipped int
	var failed, elsewhere, unchecked []string
	for name, t := range tests {
		passed += t.passed
		failures += t.failed
		skipped += t.skipped
		if t.failed > 0 {
			failed = append(failed, name)
		}
		switch {
		case t.skipped == 0:
		case t.passed+t.failed == 0:
			unchecked = append(unchecked, name)
		default:
			elsewhere = append(elsewhere, name)
		}
	}
	slices.Sort(failed)
	slices.Sort(elsewhere)
	slices.Sort(unchecked)
	for _, name := range failed {
		fmt.Printf("failed: %s\n%s\n", name, tests[name].failures.String())
	}
	for _, name := range elsewhere {
		fmt.Printf("skipped in %d of %d runs: %s\n%s\n", tests[name].skipped, tests[name].skipped+tests[name].passed+tests[name].failed, name, tests[name].skips.String())
	}
	for _, name := range unchecked {
		fmt.Printf("skipped in every run: %s\n%s\n", name, tests[name].skips.String())
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failures+len(unchecked), skipped)
	return passed > 0 && len(failed) == 0 && len(unchecked) == 0
}
