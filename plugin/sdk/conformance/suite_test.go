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

func TestStateInMemory(t *testing.T) { wantKept(t, Test(t, stateBed(t, "memory"))) }

func wantKept(t *testing.T, r *Report) {
	t.Helper()
	if r.Count(Checked) == 0 || r.Count(Failed)+r.Count(Deviates) > 0 {
		t.Errorf("%d checked, %d failed, %d deviate", r.Count(Checked), r.Count(Failed), r.Count(Deviates))
	}
}
