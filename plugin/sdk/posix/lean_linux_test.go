package posix_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

// TestHelpersTakeFewThreads counts them while many commands run, and when these
// have done all that makes a helper busy.
func TestHelpersTakeFewThreads(t *testing.T) {
	const commands = 20
	each := posix.PIDs(1) - posix.PIDs(0) + threadsOfC
	count := func(when string) {
		t.Helper()
		helpers, all := ownHelpers(t), 0
		for _, pid := range helpers {
			n := statusOf(t, pid, "Threads")
			if all += n; n > each+1 { // one more on a machine that is so busy that it takes long to rest
				t.Errorf("%s: helper %d has %d threads, want %d", when, pid, n, each)
			}
		}
		t.Logf("%s: %d helpers have %d threads", when, len(helpers), all)
		if most := len(helpers)*each + 2; all > most || all < len(helpers)*(each-threadsOfC) {
			t.Errorf("%s: %d threads, want %d", when, all, len(helpers)*each)
		}
	}
	ws := openWorkspace(t)
	var running []sdk.Process
	for range commands {
		running = append(running, start(t, ws, script(`(true &); seq 1 100; setsid sleep 987 & trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done`)))
	}
	for _, p := range running {
		readUntil(t, p, "ready\n")
	}
	count("running")
	for _, p := range running {
		if survivors := p.Stop(0); survivors != "" {
			t.Errorf("survivors: %s", survivors)
		}
	}
	count("stopped")
}

func readUntil(t *testing.T, p sdk.Process, end string) {
	t.Helper()
	var got strings.Builder
	for buf := make([]byte, 4096); !strings.HasSuffix(got.String(), end); {
		n, err := p.Stdout().Read(buf)
		if got.Write(buf[:n]); err != nil {
			t.Fatalf("read %q: %v", got.String(), err)
		}
	}
}

// reserved is what PIDs has for a process itself, without any helper.
func reserved(t *testing.T) int {
	t.Helper()
	return posix.PIDs(0) - (posix.PIDs(1) - posix.PIDs(0))
}

// statusOf reads a number of a process's status.
func statusOf(t *testing.T, pid int, name string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return 0 // it has ended
	}
	must(t, err)
	found := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+)`).FindSubmatch(status)
	if found == nil { // a zombie has none
		if strings.Contains(string(status), "\nState:\tZ") {
			return 0
		}
		t.Fatalf("no %s in %s", name, status)
	}
	n, err := strconv.Atoi(string(found[1]))
	must(t, err)
	return n
}

// TestSupervisorsUseUpBoundedMemory runs commands that each take much of it, for
// they collect no garbage.
func TestSupervisorsUseUpBoundedMemory(t *testing.T) {
	ws := openWorkspace(t)
	large := map[string]string{}
	for _, name := range []string{"A", "B", "C"} {
		large[name] = strings.Repeat("x", 100<<10)
	}
	for range 150 {
		run(t, ws, sdk.Command{Args: []string{"true"}, Env: large})
		if _, err := ws.Start(t.Context(), sdk.Command{Args: []string{"true"}, Env: large, Dir: "gone"}); err == nil {
			t.Fatal("started in a folder that is not there")
		}
	}
	const most = 48 << 10 // hundreds without a bound
	for _, pid := range ownHelpers(t) {
		if got := statusOf(t, pid, "RssAnon"); got > most {
			t.Errorf("helper %d has %d KiB of its own, want at most %d", pid, got, most)
		}
	}
}

// TestSignalsSentToSupervisors sends all that ask a process to end, or would do so
// where they are not known.
func TestSignalsSentToSupervisors(t *testing.T) {
	ws := openWorkspace(t)
	r := run(t, ws, script(`
		for n in $(seq 1 64); do
			case $n in 4|5|7|8|9|11|19|31) ;; # those of a broken program, KILL and STOP
			*) kill -$n $PPID && kill -$n $(sed -n 's/^PPid:\t//p' /proc/$PPID/status) || exit 1;;
			esac
		done
		exit 3`))
	if r.code != 3 {
		t.Errorf("%+v, want a supervisor that tells exit code 3", r)
	}
	if r := run(t, ws, script("echo fine; sed -n '/^Sig[BIC]/p' /proc/self/status")); !regexp.MustCompile(`^fine\n(Sig...:\t0+\n){3}$`).MatchString(r.stdout) {
		t.Errorf("afterwards, and what a command gets of it: %+v", r)
	}
}

// TestReserve counts the threads of a process that has called it.
func TestReserve(t *testing.T) {
	var threads, processors int
	out := runRole(t, roleReserve, t.TempDir())
	if _, err := fmt.Sscan(out, &threads, &processors); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if most := reserved(t) + 6 + threadsOfC; threads < reserved(t) || threads > most {
		t.Errorf("%d threads, want %d to %d", threads, reserved(t), most)
	}
	if processors > 4 {
		t.Errorf("%d processors", processors)
	}
}

// ownHelpers are the helper processes of this one.
func ownHelpers(t testing.TB) (pids []int) {
	t.Helper()
	parents := parents(t)
	for pid := range parents {
		if !strings.HasPrefix(commandLine(pid), "berth-supervisor\x00") {
			continue
		}
		for p := pid; p > 1; p = parents[p] {
			if parents[p] == os.Getpid() {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// parents are those of all processes, zombies too.
func parents(t testing.TB) map[int]int {
	t.Helper()
	parents := map[int]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		_, err = fmt.Sscan(string(stat), &pid)
		must(t, err)
		_, err = fmt.Sscan(rest, new(string), &parent)
		must(t, err)
		parents[pid] = parent
	}
	return parents
}
