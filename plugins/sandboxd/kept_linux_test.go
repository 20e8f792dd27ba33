package sandboxd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSweepRemovesWhatNobodyWants: results that have arrived and old ones, and nothing
// that only looks like one.
func TestSweepRemovesWhatNobodyWants(t *testing.T) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	whole, _, _ := strings.Cut(string(text), ".")
	now, err := strconv.Atoi(whole)
	if err != nil {
		t.Fatal(err)
	}
	name := func(age int, run string) string { return fmt.Sprintf(".berth-kept-%d-%s", max(now-age, 0), run) }
	arrived := []string{newID(), newID(), newID()} // the last one is not there
	removed := []string{name(1, arrived[0]), name(100, arrived[1]), name(-1000, newID())}
	stays := []string{name(0, newID()), name(200, newID()), ".berth-run-" + newID(), ".berth-kept-", ".berth-kept--" + newID(), "other"}
	if now > 1000 { // else nothing can be old
		removed = append(removed, name(400, newID()))
		stays = append(stays, name(400, newID())+" other", name(400, "$(rm other)"), name(400, "*"))
	}
	for _, shell := range [][]string{{"dash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		if _, err := exec.LookPath(shell[0]); err != nil {
			if shell[0] == "dash" {
				shell = []string{"sh"}
			} else {
				continue
			}
		}
		dir := filepath.Join(t.TempDir(), "it's a folder")
		for i, entry := range slices.Concat(removed, stays) {
			path := filepath.Join(dir, entry)
			if i%2 == 0 {
				path = filepath.Join(path, "o.100000")
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("result"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		script := resultScript + "_b_sweep " + quote(dir) + " '" + strings.Join(arrived, " ") + "'\necho swept\n"
		out, err := exec.Command(shell[0], append(slices.Clone(shell[1:]), "-c", script)...).CombinedOutput()
		if string(out) != "swept\n" || err != nil {
			t.Errorf("%v: %q, %v", shell, out, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, entry := range entries {
			left = append(left, entry.Name())
		}
		if want := slices.Sorted(slices.Values(stays)); !slices.Equal(left, want) {
			t.Errorf("%v: left are %q, want %q", shell, left, want)
		}
	}
}
