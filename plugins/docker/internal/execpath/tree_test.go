package execpath

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func statLine(pid int, name string, state byte, parent, group, session int, start string) string {
	return fmt.Sprintf("%d (%s) %c %d %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %s 0 0", pid, name, state, parent, group, session, start)
}

func TestStatIsParsedWhateverTheName(t *testing.T) {
	for _, name := range []string{"sh", "a b", "a) S 1 1 1 (", ")", "(", ""} {
		e, ok := parseEntry(statLine(7, name, 'S', 1, 5, 6, "99"))
		if !ok || e.pid != 7 || e.name != name || e.parent != 1 || e.group != 5 || e.session != 6 || e.start != "99" || e.state != 'S' {
			t.Errorf("%q: %+v, %v", name, e, ok)
		}
	}
	for _, line := range []string{"", "7", "7 (sh)", "7 (sh) S 1", ") 7 (", "x (sh) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0"} {
		if e, ok := parseEntry(line); ok {
			t.Errorf("%q: %+v", line, e)
		}
	}
}

func TestTheTreeIsFoundHoweverItDetached(t *testing.T) {
	var all []entry
	for _, line := range []string{
		statLine(1, "init", 'S', 0, 1, 1, "1"),
		statLine(8, "keeper", 'S', 0, 8, 8, "2"),
		statLine(10, "sh", 'S', 0, 10, 10, "3"),     // the command's shell
		statLine(11, "child", 'S', 10, 10, 10, "4"), // of it
		statLine(12, "setsid", 'S', 1, 12, 12, "5"), // has the variable
		statLine(13, "noenv", 'S', 12, 13, 13, "6"), // child of that, in a session of its own
		statLine(14, "orphan", 'S', 1, 14, 12, "7"), // in that session
		statLine(15, "known", 'S', 1, 15, 15, "8"),  // seen before below a parent that is gone
		statLine(16, "again", 'S', 1, 16, 16, "9"),  // has the pid of one seen before
		statLine(20, "other", 'S', 1, 20, 20, "10"), // not ours
		statLine(21, "otherkid", 'S', 20, 20, 20, "11"),
	} {
		e, ok := parseEntry(line)
		if !ok {
			t.Fatal(line)
		}
		all = append(all, e)
	}
	tree := &processTree{shell: 10, known: map[int]string{15: "8", 16: "0"}}
	var got []int
	for _, e := range tree.closure(all, map[int]bool{12: true}) {
		got = append(got, e.pid)
	}
	if want := []int{10, 11, 12, 13, 14, 15}; !slices.Equal(got, want) {
		t.Errorf("the tree is %v, want %v", got, want)
	}
}

func TestSignalNumbersAreLinuxs(t *testing.T) {
	for name, want := range map[workspace.Signal]int{"TERM": 15, "USR1": 10, "RTMIN": 34, "RTMIN+1": 35, "RTMAX-1": 63, "RTMAX": 64} {
		if got, ok := signalNumber(name); !ok || got != want {
			t.Errorf("%s is %d (%v), want %d", name, got, ok, want)
		}
	}
	for _, name := range []workspace.Signal{"NO", "TERM+1", "RTMIN+40", "RTMIN-1", ""} {
		if got, ok := signalNumber(name); ok {
			t.Errorf("%s is %d", name, got)
		}
	}
}
