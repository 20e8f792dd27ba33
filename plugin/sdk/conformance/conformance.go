// Package conformance is the workspace contract as a test suite for any
// provider. It checks every rule about the life of workspaces (L), commands (C),
// and files (F) that the provider's features allow, and of the boundary (B) that
// commands outlive the plugin where the provider says so, one subtest a promise,
// named for its rule:
//
//	func TestContract(t *testing.T) {
//		h := hosttest.New(t, map[string]hosttest.Registrar{"acme": acme.Plugin("test")})
//		conformance.Test(t, conformance.Options{Host: h, Provider: "acme"})
//	}
//
// What a provider does not have, and what the options do not allow to check, is
// in the [Report] with the reason: nothing is left out in silence.
//
// The commands are one static probe binary, put into the workspace through the
// provider's own file calls, so that the suite also runs where there is no
// shell. Building it needs the go command, unless [Options.Probe] or
// [Options.ProbePath] gives one.
package conformance

import (
	"cmp"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// Options say what is to be checked and what the test can do to it. Host and
// Provider are needed; every hook that is absent leaves the rules that need it
// "not checked" in the report.
type Options struct {
	// Host opens the workspaces.
	Host workspace.Host
	// Provider is the configured provider's name.
	Provider string

	// Probe is a binary built from plugin/sdk/conformance/probe for the
	// workspace's system. Empty: the suite builds it.
	Probe string
	// ProbePath is where the probe stands in the workspace already, as in an
	// image that has it. Empty: it is written there.
	ProbePath string
	// GOOS and GOARCH are those of the workspace. Empty means this machine's.
	GOOS, GOARCH string

	// Env is the environment that the provider is configured with, for the
	// order of contract C9. It should override a variable of the workspace's
	// own, such as LANG.
	Env map[string]string
	// LargeFile is the size for contract F8 in bytes. Zero means 64 MiB.
	LargeFile int64

	// OtherHost makes another host, or host process, over the same provider
	// and the same data (contract L2 to L4, L6, B3). It is closed with t, or
	// earlier by the suite if it is an io.Closer; one that can also be shut down
	// at once, as host.Host can, spares the suite a wait.
	OtherHost func(t testing.TB) workspace.Host
	// Started reports whether a host has started the provider's plugin
	// (contract L1). It is asked about a host of OtherHost.
	Started func(h workspace.Host) bool
	// Restart kills the plugin that serves Host and returns at once. The host
	// starts it again on the next call (contract L2, L5, L6, L8, B3).
	Restart func(t testing.TB)
	// Stop stops a workspace, or pauses or archives it, as its service would
	// (contract L3).
	Stop func(t testing.TB, ref workspace.Ref)
	// Reconfigured makes a host over the same provider with another
	// configuration of what is fixed at create, such as the image (contract L3).
	Reconfigured func(t testing.TB) workspace.Host
	// Replace puts another workspace behind the ref (contract L8).
	Replace func(t testing.TB, ref workspace.Ref)
	// Elsewhere makes something that the provider can see but did not make, and
	// says by which name and which ref it would be reached (contract L4, L6).
	Elsewhere func(t testing.TB) (name string, ref workspace.Ref)
	// Configured makes a host whose provider is configured with a name
	// (contract L4).
	Configured func(t testing.TB) Configured
	// FailCreates makes every create fail until mend is called (contract L2).
	FailCreates func(t testing.TB) (mend func())
	// SlowCreates makes every create take d longer, until t ends (contract C5).
	SlowCreates func(t testing.TB, d time.Duration)

	// Deviations are what the provider declares it does not keep. Rule is a
	// rule, such as "L3", or one check, such as "L3_StoppedIsStarted". Its
	// checks are run all the same, and reported with the reason. Rules of the
	// boundary, such as "B3", are reported also where nothing of them is checked.
	Deviations []sdk.Deviation

	// limits are set by the suite's own tests.
	limits limits
}

// Configured is a host whose provider has one workspace, by a configured name.
type Configured struct {
	Host     workspace.Host
	Provider string
	// Name is the configured one.
	Name string
}

// limits bound what should not take time at all.
type limits struct {
	// check is how long one check may take in all.
	check time.Duration
	// patience is how long a call that should end by itself may take, on a
	// loaded machine, before it counts as hanging.
	patience time.Duration
	// slack is how much later than promised an answer may come: several times
	// what the contract allows, since the machine may be busy.
	slack time.Duration
	// settle is how long something is watched that should not happen.
	settle time.Duration
	// transfers is how often a transfer is done that seems to hold too much.
	transfers int
}

func defaultLimits() limits {
	return limits{check: 5 * time.Minute, patience: time.Minute, slack: 10 * time.Second, settle: 300 * time.Millisecond, transfers: 3}
}

const defaultLargeFile = 64 << 20

func (o Options) withDefaults() Options {
	o.GOOS = cmp.Or(o.GOOS, runtime.GOOS)
	o.GOARCH = cmp.Or(o.GOARCH, runtime.GOARCH)
	o.LargeFile = cmp.Or(o.LargeFile, defaultLargeFile)
	o.limits = cmp.Or(o.limits, defaultLimits())
	return o
}

var boundaryRule = regexp.MustCompile(`^B[0-9]+$`)

// Test runs the suite as subtests of t, logs the report and returns it.
func Test(t *testing.T, opts Options) *Report {
	t.Helper()
	if opts.Host == nil || opts.Provider == "" {
		t.Fatal("conformance: Options.Host and Options.Provider are needed")
	}
	e := newEnv(t, opts.withDefaults())
	report := &Report{Provider: opts.Provider, Features: e.features}
	for _, c := range checks() {
		report.add(e.perform(t, c))
	}
	for _, d := range e.opts.Deviations {
		about := func(l Line) bool { return deviatesFrom(d, l.Check) }
		switch {
		case slices.ContainsFunc(report.Lines, func(l Line) bool { return about(l) && l.Status == Deviates }):
		case slices.ContainsFunc(report.Lines, about) && !boundaryRule.MatchString(d.Rule):
		case boundaryRule.MatchString(d.Rule): // the host's own tests are about those
			report.add(Line{Check: d.Rule, Status: Deviates, Reason: d.Reason})
		default:
			t.Errorf("deviation %q (%s) names no rule and no check of the suite", d.Rule, d.Reason)
		}
	}
	t.Logf("\n%s", report)
	return report
}

// perform runs one check as a subtest, or says why not.
func (e *env) perform(t *testing.T, c check) Line {
	line := Line{Check: c.name}
	if line.Status, line.Reason = e.applies(c); line.Status != "" {
		return line
	}
	deviation, deviates := e.deviation(c.name)
	e.skipped = ""
	if deviates {
		// A declared deviation is no failure, but whoever reads the report
		// should know whether it still is one.
		kept := true
		t.Run(c.name, func(t *testing.T) {
			r := record(t, c.name, func(t testing.TB) { c.run(t, e) })
			kept = !r.Failed()
			t.Logf("declared deviation: %s\n%s", deviation.Reason, r.output())
		})
		line.Status, line.Reason = Deviates, deviation.Reason
		if kept && e.skipped == "" {
			line.Reason += " (but this check passed)"
		}
		return line
	}
	line.Status = Checked
	ran := false
	if !t.Run(c.name, func(t *testing.T) { ran = true; c.run(t, e) }) {
		line.Status = Failed
	}
	switch {
	case !ran:
		line.Status, line.Reason = NotChecked, "left out by -run"
	case e.skipped != "" && line.Status == Checked:
		line.Status, line.Reason = NotChecked, e.skipped
	}
	return line
}

func deviatesFrom(d sdk.Deviation, name string) bool { return d.Rule == name || d.Rule == ruleOf(name) }

func (e *env) deviation(name string) (sdk.Deviation, bool) {
	i := slices.IndexFunc(e.opts.Deviations, func(d sdk.Deviation) bool { return deviatesFrom(d, name) })
	if i < 0 {
		return sdk.Deviation{}, false
	}
	return e.opts.Deviations[i], true
}

// applies says why a check does not apply, or nothing.
func (e *env) applies(c check) (Status, string) {
	for _, f := range c.needs {
		if !e.features.Has(f) {
			return Absent, string(f)
		}
	}
	for _, h := range c.hooks {
		if !h.given(&e.opts) {
			return NotChecked, "needs Options." + h.name
		}
	}
	return "", ""
}

// Rules returns the ids of the rules that the suite checks.
func Rules() []string {
	set := map[string]bool{}
	for _, c := range checks() {
		set[ruleOf(c.name)] = true
	}
	return slices.SortedFunc(maps.Keys(set), compareRules)
}
