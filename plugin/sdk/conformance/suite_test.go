package conformance

import (
	"path/filepath"
	"testing"
)

func TestFolder(t *testing.T) { wantKept(t, Test(t, folderBed(t, false))) }

// TestFolderInItsOwnProcess has the probe baked in, as images may.
func TestFolderInItsOwnProcess(t *testing.T) {
	opts := folderBed(t, true)
	opts.ProbePath, opts.Probe = opts.Probe, ""
	wantKept(t, Test(t, opts))
}

func TestState(t *testing.T) {
	wantKept(t, Test(t, stateBed(t, "file:"+filepath.Join(t.TempDir(), "state.db"))))
}

// TestStateInMemory has declared deviations, which are reported.
func TestStateInMemory(t *testing.T) {
	r := Test(t, stateBed(t, "memory"))
	if r.Count(Checked) == 0 || r.Count(Failed) > 0 {
		t.Errorf("%d checked, %d failed", r.Count(Checked), r.Count(Failed))
	}
	for _, l := range r.Lines {
		if declared := l.Rule() == "L6" || l.Rule() == "B3"; l.Status == Deviates && !declared || declared && l.Status == Checked {
			t.Errorf("%s: %s", l.Check, l.Status)
		}
	}
}

func wantKept(t *testing.T, r *Report) {
	t.Helper()
	if r.Count(Checked) == 0 || r.Count(Failed)+r.Count(Deviates) > 0 {
		t.Errorf("%d checked, %d failed, %d deviate", r.Count(Checked), r.Count(Failed), r.Count(Deviates))
	}
}
