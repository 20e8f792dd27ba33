package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// mutant is a good provider but for one fault, on which one check must fail.
type mutant struct {
	// check is the one that must fail.
	check string
	// fault says what is wrong.
	fault string
	bend  func(o *Options)
	// hangs: the fault is a wait, so that the check need not be patient.
	hangs bool
	// on is the provider that is bent: "" for folders in this process.
	on string
	// also are rules that cannot be kept with this fault.
	also []string
	// unprivileged: the super-user does not notice the fault.
	unprivileged bool
	// alone: it is measured in this process, where nothing else may happen.
	alone bool
}

// Providers that are bent, beside folders in this process.
const (
	ownProcess = "folders in a process of their own"
	filesOnly  = "state"
	withGuests = "folders with guests"
)

func mutants() []mutant {
	return slices.Concat(lifeMutants(), commandMutants(), fileMutants(), runMutants())
}

// TestEveryCheckHasAMutant: a check that no fault fails proves nothing.
func TestEveryCheckHasAMutant(t *testing.T) {
	known := map[string]bool{}
	for _, c := range checks() {
		if known[c.name] {
			t.Errorf("two checks are named %s", c.name)
		}
		known[c.name] = true
		if !slices.ContainsFunc(mutants(), func(m mutant) bool { return m.check == c.name }) {
			t.Errorf("no mutant is there for %s", c.name)
		}
	}
	for _, m := range mutants() {
		if !known[m.check] {
			t.Errorf("mutant %q is for %s, which is no check", m.fault, m.check)
		}
	}
}

// TestEveryRuleIsChecked compares with the contract's rules about life,
// commands, files, and runs that outlive their plugin.
func TestEveryRuleIsChecked(t *testing.T) {
	want := []string{
		"L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8",
		"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10",
		"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10",
		"B3",
	}
	if got := Rules(); !slices.Equal(got, want) {
		t.Errorf("the suite checks %v, the contract has %v", got, want)
	}
}

// TestMutants shows that the suite fails on every fault, by the name of the
// rule that it breaks, and that other rules are not blamed for it. Whose user it
// runs as changes nothing, but for those of TestUnprivilegedMutants.
func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		if m.unprivileged {
			continue
		}
		t.Run(m.check+"/"+m.fault, func(t *testing.T) {
			if !m.alone {
				t.Parallel()
			}
			m.mustBeFound(t)
		})
	}
}

// TestUnprivilegedMutants is of faults that only show to who can be denied
// something: to the super-user the check itself says that it was not made.
func TestUnprivilegedMutants(t *testing.T) {
	for _, m := range mutants() {
		if !m.unprivileged {
			continue
		}
		t.Run(m.check+"/"+m.fault, func(t *testing.T) {
			t.Parallel()
			if os.Geteuid() != 0 {
				m.mustBeFound(t)
				return
			}
			if line := m.perform(t, m.check)[0]; line.Status != NotChecked {
				t.Errorf("as the super-user: %s, want not checked", line.Status)
			}
		})
	}
}

func (m mutant) mustBeFound(t *testing.T) {
	t.Helper()
	line := m.perform(t, m.check)[0]
	output := line.output
	if line.Status != Failed {
		t.Fatalf("the check is %q (%s), want it to fail\n%s", line.Status, line.Reason, output)
	}
	for _, excuse := range []string{"open a workspace of provider", "put the probe into", "run the probe", "panic:"} {
		if strings.Contains(output, excuse) {
			t.Errorf("the check failed before it had begun:\n%s", output)
		}
	}
	t.Logf("it says: %s", output)
	others := slices.DeleteFunc(bystanders(), func(name string) bool {
		return ruleOf(name) == ruleOf(m.check) || slices.Contains(m.also, ruleOf(name))
	})
	for _, line := range m.perform(t, others...) {
		if line.Status == Failed {
			t.Errorf("the fault is one of %s, and %s fails too:\n%s", m.check, line.Check, line.output)
		}
	}
}

// bystanders are quick checks, one of most rules.
func bystanders() []string {
	return []string{
		"L3_AttachReachesTheSameWorkspace", "L6_DestroyTwiceIsSuccess",
		"C1_ArgumentsAreLiteral", "C2_DirIsWhereItStarts", "C4_OutputIsExact", "C9_ValuesAreNotKept",
		"F1_RelativePathsBeginAtWorkingDirectory", "F3_MissingIsNotExist", "F4_StatFollowsAndLstatDoesNot",
		"F6_RemoveTakesFilesAndTrees", "F7_FollowsLinks", "F10_Append",
	}
}

// bed makes the mutant's options, and the good ones that it comes from.
func (m mutant) bed(t testing.TB) (good, bad Options) {
	t.Helper()
	switch m.on {
	case filesOnly:
		good = stateBed(t, "file:"+filepath.Join(t.TempDir(), "state.db"))
	case withGuests:
		good = durableBed(t)
		good.ProbePath, good.Probe = good.Probe, ""
	default:
		good = folderBed(t, m.on == ownProcess)
		good.ProbePath, good.Probe = good.Probe, ""
	}
	good.LargeFile = 32 << 20 // more than mostHeld
	good.limits = defaultLimits()
	if m.hangs {
		good.limits = limits{check: time.Minute, patience: 4 * time.Second, slack: 1500 * time.Millisecond, settle: 300 * time.Millisecond}
	}
	good.limits.transfers = 1 // a mutant of them is alone, and a fault is no chance
	bad = good
	m.bend(&bad)
	return good, bad
}

// said is a line of the report with what its check said.
type said struct {
	Line
	output string
}

// perform runs checks on a fresh mutant.
func (m mutant) perform(t *testing.T, names ...string) []said {
	t.Helper()
	var lines []said
	r := record(t, m.check, func(t testing.TB) {
		good, bad := m.bed(t)
		e := newEnv(t, good.withDefaults())
		e = &env{opts: bad.withDefaults(), features: e.features, outer: t, probes: map[workspace.Workspace]string{}}
		for _, c := range checks() {
			if slices.Contains(names, c.name) {
				lines = append(lines, m.judge(t, e, c))
			}
		}
	})
	if len(lines) != len(names) {
		t.Fatalf("of %d checks %d were run:\n%s", len(names), len(lines), r.output())
	}
	return lines
}

func (m mutant) judge(t testing.TB, e *env, c check) said {
	line := said{Line: Line{Check: c.name}}
	if line.Status, line.Reason = e.applies(c); line.Status != "" {
		return line
	}
	e.skipped = ""
	judged := record(t, c.name, func(t testing.TB) { c.run(t, e) })
	line.output = judged.output()
	switch {
	case judged.Failed():
		line.Status = Failed
	case e.skipped != "":
		line.Status, line.Reason = NotChecked, e.skipped
	default:
		line.Status = Checked
	}
	return line
}
