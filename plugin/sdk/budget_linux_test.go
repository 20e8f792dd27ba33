package sdk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/wire"
)

// A plugin takes the lower priority that its host asks for, with all its threads, if
// it may undo that for what it starts; and what it was told reaches nothing else.
func TestServeTakesItsBudget(t *testing.T) {
	told := wire.Budget{Nice: 7, GoMemoryLimit: true, CommandGroups: []string{"/sys/fs/cgroup/nowhere"}}
	p := startPlugin(t, "plain", wire.BudgetEnv+"="+told.String(), "GOMEMLIMIT=512MiB")
	if env := p.mustOrder(t, "exec/env"); strings.Contains(env, wire.BudgetEnv) || strings.Contains(env, "GOMEMLIMIT") {
		t.Errorf("a child sees %s", env)
	}
	want := "7"
	if !mayUndo() {
		want = "0"
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%q, %v", threads, err)
	}
	for _, thread := range threads {
		const nice = 16 // the field, after the name
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if got := strings.Fields(rest)[nice]; got != want {
			t.Errorf("%s: niceness %s, want %s", thread, got, want)
		}
	}
}

// What the operator has set for a plugin goes on to its children, and a budget that
// cannot be read keeps no plugin from serving.
func TestServeWithAnotherBudget(t *testing.T) {
	for name, env := range map[string][]string{
		"the operator's": {wire.BudgetEnv + "={}", "GOMEMLIMIT=512MiB"},
		"no JSON":        {wire.BudgetEnv + "=?", "GOMEMLIMIT=512MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPlugin(t, "plain", env...)
			if env := p.mustOrder(t, "exec/env"); strings.Contains(env, wire.BudgetEnv) || !strings.Contains(env, "GOMEMLIMIT=512MiB") {
				t.Errorf("a child sees %s", env)
			}
			if name == "no JSON" && !strings.Contains(p.stderr.String(), "the host's budget for this process") {
				t.Errorf("nothing is said: %s", p.stderr.String())
			}
		})
	}
}
