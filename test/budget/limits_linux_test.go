package budget

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

const mib = 1 << 20

// readings is longer than the host's watch takes for several of them.
const readings = 4 * time.Second

// A plugin over its soft budget is told of once, with figures, and goes on.
func TestMuchMemoryIsToldOf(t *testing.T) {
	t.Parallel()
	h := newHost(t, map[string]host.Budget{faults.Good: {MemorySoft: 64 * mib}})
	ws := open(t, h, faults.Good)
	pid := status(t, h, faults.Good).PID
	must(t, order(t.Context(), ws, "eat/100"))
	soft := func() []string { return told(t, h, faults.Good, "over-soft") }
	poll(t, "the warning", func() bool { return len(soft()) > 0 })
	must(t, order(t.Context(), ws, "sleep/"+readings.String()))
	text := soft()[0]
	if len(soft()) != 1 || !regexp.MustCompile(`^pid \d+ uses 1\d\d MiB of memory, more than its soft budget of 64 MiB$`).MatchString(text) {
		t.Errorf("%q", soft())
	}
	if now := status(t, h, faults.Good); now.PID != pid || now.Restarts != 0 {
		t.Errorf("%+v", now)
	}
}

// A plugin over its budget is ended, its calls say why, and the next one starts it:
// by the host's watch where there are no control groups, by the kernel where there
// are.
func TestAPluginOverItsMemoryIsEnded(t *testing.T) {
	const budget = 96
	h := newHost(t, map[string]host.Budget{faults.Good: {Memory: budget * mib}, faults.Lifeline: {}})
	ws, other := open(t, h, faults.Good), open(t, h, faults.Lifeline)
	pid := status(t, h, faults.Good).PID
	inFlight := make(chan error, 1)
	go func() { inFlight <- order(t.Context(), ws, "sleep/1h") }()
	poll(t, "the call is under way", func() bool { return status(t, h, faults.Good).InFlight == 1 })
	_ = order(t.Context(), ws, "eat/300") // which may not come back
	err := <-inFlight
	var plug *workspace.PluginError
	if !errors.As(err, &plug) || plug.PID != pid || !plug.MayHaveExecuted {
		t.Fatalf("%v", err)
	}
	kind, want := "killed", `^the host ended the plugin: it used 3\d\d MiB of memory, its budget is 96 MiB$`
	if bounded(t, h, faults.Good) {
		kind, want = "oom", `^the kernel ended the plugin: it wanted more memory than its budget of 96 MiB$`
	}
	if !regexp.MustCompile(want).MatchString(plug.Reason) {
		t.Errorf("reason %q, want %s", plug.Reason, want)
	}
	poll(t, "its end is told", func() bool { return len(told(t, h, faults.Good, kind)) > 0 })
	if events := told(t, h, faults.Good, kind); len(events) != 1 || !strings.Contains(events[0], "budget") {
		t.Errorf("%s: %q", kind, events)
	}
	must(t, order(t.Context(), ws, "ping"))
	must(t, order(t.Context(), other, "ping"))
	if now := status(t, h, faults.Good); now.Restarts != 1 || !strings.Contains(now.LastError, "its budget") {
		t.Errorf("%+v", now)
	}
	if now := status(t, h, faults.Lifeline); now.Restarts != 0 {
		t.Errorf("the other one: %+v", now)
	}
}

// The same of a host without privileges.
func TestAPluginOverItsMemoryIsEndedByTheWatch(t *testing.T) {
	t.Parallel()
	if !withoutPrivileges(t) {
		TestAPluginOverItsMemoryIsEnded(t)
	}
}

// The host's watch counts the plugin's own process, not its children, however many
// they are.
func TestChildrenAreNotCountedByTheWatch(t *testing.T) {
	t.Parallel()
	if withoutPrivileges(t) {
		return
	}
	h := newHost(t, map[string]host.Budget{faults.Good: {Memory: 96 * mib}})
	ws := open(t, h, faults.Good)
	if bounded(t, h, faults.Good) {
		t.Skip("this user may make control groups, which count children")
	}
	pid := status(t, h, faults.Good).PID
	must(t, order(t.Context(), ws, "eating-child/200"))
	must(t, order(t.Context(), ws, "fork/200"))
	must(t, order(t.Context(), ws, "sleep/"+readings.String()))
	if now := status(t, h, faults.Good); now.PID != pid || now.Restarts != 0 {
		t.Errorf("%+v", now)
	}
}

// A plugin that forks all the time stays within its groups, and leaves nothing in
// them.
func TestAPluginThatForksStaysInItsGroups(t *testing.T) {
	h := newHost(t, map[string]host.Budget{faults.Good: {Memory: 128 * mib, CPU: 1.5}})
	ws := open(t, h, faults.Good)
	pid := strconv.Itoa(status(t, h, faults.Good).PID)
	groups, own := groupsOf(t, pid), groupsOf(t, "self")
	done := make(chan error, 4)
	for range cap(done) {
		go func() { done <- order(t.Context(), ws, "fork/100") }()
	}
	for range cap(done) {
		must(t, <-done)
	}
	info, err := ws.Stat(t.Context(), "/eating-child/20")
	must(t, err)
	for controller, group := range groupsOf(t, info.Target) {
		if group != groups[controller] {
			t.Errorf("%s: a child is in %s, the plugin in %s", controller, group, groups[controller])
		}
	}
	must(t, h.Close())
	if !bounded(t, h, faults.Good) {
		if fmt.Sprint(groups) != fmt.Sprint(own) {
			t.Errorf("without control groups it is in %v, the host in %v", groups, own)
		}
		return
	}
	if alive(info.Target) {
		t.Error("a child in a session of its own lives on")
	}
	for _, controller := range []string{"memory", "cpu", ""} {
		if group := groups[controller]; group != own[controller] {
			if _, err := os.Stat(folder(t, controller, group)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the group %s is left: %v", group, err)
			}
		}
	}
}

// alive reports whether a process is there that is no zombie.
func alive(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// folder is where a group of a controller is mounted; of version 2 without one.
func folder(t testing.TB, controller, group string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		mount, kind, _ := strings.Cut(strings.TrimSpace(line), " - ")
		at, what := strings.Fields(mount), strings.Fields(kind)
		if controller == "" && what[0] == "cgroup2" || controller != "" && what[0] == "cgroup" && strings.Contains(","+what[2]+",", ","+controller+",") {
			return filepath.Join(at[4], strings.TrimPrefix(group, at[3]))
		}
	}
	t.Fatalf("no hierarchy of %q", controller)
	return ""
}

// A plugin may keep no more than its part of a processor busy. Without control
// groups it only has a lower priority, or not even that: see the SDK's tests.
func TestProcessorTimeIsBounded(t *testing.T) {
	t.Parallel()
	h := newHost(t, map[string]host.Budget{faults.Good: {CPU: 0.1}})
	ws := open(t, h, faults.Good)
	pid := status(t, h, faults.Good).PID
	groups := groupsOf(t, strconv.Itoa(pid))
	if !bounded(t, h, faults.Good) {
		if own := groupsOf(t, "self"); fmt.Sprint(groups) != fmt.Sprint(own) {
			t.Errorf("it is in %v, the host in %v", groups, own)
		}
		must(t, order(t.Context(), ws, "spin/1s"))
		return
	}
	throttled := func() (n int) {
		controller, quota, want := "cpu", "cpu.cfs_quota_us", "10000"
		if _, v1 := groups[controller]; !v1 {
			controller, quota, want = "", "cpu.max", "10000 100000"
		}
		dir := folder(t, controller, groups[controller])
		if got, err := os.ReadFile(filepath.Join(dir, quota)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Fatalf("%s: %q, %v", quota, got, err)
		}
		stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		must(t, err)
		_, err = fmt.Sscanf(string(stat[strings.Index(string(stat), "nr_throttled"):]), "nr_throttled %d", &n)
		must(t, err)
		return n
	}
	before, used := throttled(), processorTime(t, pid)
	began := time.Now()
	poll(t, "it is throttled", func() bool { // a busy machine gives it little at a time
		must(t, order(t.Context(), ws, "spin/300ms"))
		return throttled() >= before+10
	})
	// Each new period may begin with what the last one had left.
	used, took := processorTime(t, pid)-used, time.Since(began)
	if used > took/5 {
		t.Errorf("it used %v of processor time in %v", used, took)
	}
}

// processorTime is what a process has used of it.
func processorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	const userTicks, systemTicks, tick = 11, 12, 10 * time.Millisecond
	var sum time.Duration
	for _, i := range []int{userTicks, systemTicks} {
		n, err := strconv.Atoi(strings.Fields(rest)[i])
		must(t, err)
		sum += time.Duration(n) * tick
	}
	return sum
}
