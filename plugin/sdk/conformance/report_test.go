package conformance

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestReport(t *testing.T) {
	r := &Report{Provider: "acme", Features: workspace.Features{workspace.FeatureFiles: true, workspace.FeatureChmod: false}}
	r.add(Line{Check: "C10_A", Status: Checked})
	r.add(Line{Check: "F1_B", Status: Absent, Reason: "a|b\nc"})
	r.add(Line{Check: "L3_C", Status: Deviates, Reason: "no stop"})
	if got := r.Lines[0].Rule(); got != "C10" {
		t.Errorf("the rule of C10_A is %q", got)
	}
	for text, wants := range map[string][]string{
		r.String():   {"provider acme: 1 checked, 1 absent, 1 deviates\n", "features: files\n", "C10_A  checked", "L3_C   deviates  no stop"},
		r.Markdown(): {"Features: files. Contract: 1 checked, 1 absent, 1 deviates.\n", "| F1_B | absent | a\\|b c |\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("the report lacks %q:\n%s", want, text)
			}
		}
	}
}

func TestCompareRules(t *testing.T) {
	for _, pair := range [][2]string{{"L8", "C1"}, {"C9", "C10"}, {"C2", "C10"}, {"C10", "F1"}} {
		if compareRules(pair[0], pair[1]) >= 0 || compareRules(pair[1], pair[0]) <= 0 || compareRules(pair[0], pair[0]) != 0 {
			t.Errorf("%s is to come before %s", pair[0], pair[1])
		}
	}
}

func TestRecorder(t *testing.T) {
	var order []string
	note := func(s string) func() { return func() { order = append(order, s) } }
	for _, c := range []struct {
		name   string
		run    func(testing.TB)
		failed bool
		says   string
		order  string
	}{
		{"a check that passes", func(t testing.TB) { t.Cleanup(note("1")); t.Cleanup(note("2")); t.Log("a", "b") }, false, "a b", "2 1"},
		{"Errorf goes on", func(t testing.TB) { t.Errorf("bad %d", 1); note("after")() }, true, "bad 1", "after"},
		{"Fatalf does not", func(t testing.TB) { t.Cleanup(note("clean")); t.Fatalf("bad"); note("after")() }, true, "bad", "clean"},
		{"a panic is a failure", func(testing.TB) { panic("oops") }, true, "panic: oops", ""},
		{"a clean-up fails it", func(t testing.TB) { t.Cleanup(func() { t.Error("late") }) }, true, "late", ""},
		{"the context ends before clean-ups", func(t testing.TB) {
			ctx := t.Context()
			t.Cleanup(func() { t.Log(ctx.Err()) })
		}, false, "context canceled", ""},
	} {
		order = nil
		r := record(t, c.name, c.run)
		if r.Failed() != c.failed || !strings.HasPrefix(r.output(), c.says) || strings.Join(order, " ") != c.order || r.Name() != c.name {
			t.Errorf("%s: failed %v, said %q, order %v", c.name, r.Failed(), r.output(), order)
		}
	}
}

// TestDeviationsAreReported: a check of a declared deviation fails nothing, and
// one that passes is told.
func TestDeviationsAreReported(t *testing.T) {
	e := &env{opts: Options{Deviations: []sdk.Deviation{{Rule: "F5", Reason: "no parents"}, {Rule: "F6_X", Reason: "no trees"}}}}
	fails := func(t testing.TB, _ *env) { t.Fatal("not kept") }
	passes := func(testing.TB, *env) {}
	for _, c := range []struct {
		check  check
		status Status
		reason string
	}{
		{check{name: "F5_A", run: fails}, Deviates, "no parents"},
		{check{name: "F5_B", run: passes}, Deviates, "no parents (but this check passed)"},
		{check{name: "F6_X", run: fails}, Deviates, "no trees"},
		{check{name: "F6_Y", run: passes}, Checked, ""},
		{check{name: "F1_Z", run: func(t testing.TB, e *env) { e.notChecked(t, "no %s", "tape") }}, NotChecked, "no tape"},
		{check{name: "C1_Q", needs: commands, run: fails}, Absent, "commands"},
		{check{name: "L1_R", hooks: hooks(needStop, needRestart), run: fails}, NotChecked, "needs Options.Stop"},
	} {
		if line := e.perform(t, c.check); line.Status != c.status || line.Reason != c.reason {
			t.Errorf("%s: %q (%q), want %q (%q)", c.check.name, line.Status, line.Reason, c.status, c.reason)
		}
	}
}
