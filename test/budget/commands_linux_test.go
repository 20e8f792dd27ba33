package budget

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// Nothing of a plugin's budget reaches its commands (contract C9): they are in the
// groups of the host, what they use is not the plugin's, and they see none of what
// the plugin was told.
func TestCommandsAreNotBounded(t *testing.T) {
	h := newHost(t, map[string]host.Budget{local: {Memory: 64 * mib, CPU: 0.5}})
	ws := open(t, h, local)
	pid := status(t, h, local).PID
	run := func(script string) string {
		t.Helper()
		res, err := ws.Run(t.Context(), workspace.Command{Script: script})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("%s: %+v, %v", script, res, err)
		}
		return res.StdoutText()
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	if got := run("cat /proc/self/cgroup"); got != string(own) {
		t.Errorf("a command is in\n%sand the host in\n%s", got, own)
	}
	// More than the budget, in one process and all at once.
	run("dd if=/dev/zero of=/dev/null bs=200M count=2 2>/dev/null & dd if=/dev/zero of=/dev/null bs=200M count=2 2>/dev/null; wait")
	if env := run("env"); strings.Contains(env, "GOMEMLIMIT") || strings.Contains(env, "BERTH_") {
		t.Errorf("a command sees %s", env)
	}
	niceness := strings.Fields(run("cat /proc/self/stat"))[18]
	if niceness != "0" {
		t.Errorf("a command has the niceness %s", niceness)
	}
	if now := status(t, h, local); now.PID != pid || now.Restarts != 0 {
		t.Errorf("%+v", now)
	}
	if plugin := groupsOf(t, strconv.Itoa(pid)); bounded(t, h, local) == (plugin["memory"] == groupsOf(t, "self")["memory"] && plugin[""] == groupsOf(t, "self")[""]) {
		t.Errorf("the plugin is in %v", plugin)
	}
}

// The same of a host without privileges, which may make no groups and no priority
// undone.
func TestCommandsAreNotBoundedWithoutPrivileges(t *testing.T) {
	if !withoutPrivileges(t) {
		TestCommandsAreNotBounded(t)
	}
}

// What a killed host has left is removed by the next one, and what a live one has is
// not.
func TestGroupsOfAKilledHostAreSwept(t *testing.T) {
	killed, living := startHost(t), startHost(t)
	if groupsOf(t, killed.plugin)["memory"] == groupsOf(t, "self")["memory"] && groupsOf(t, killed.plugin)[""] == groupsOf(t, "self")[""] {
		// Without control groups there is nothing to sweep, and none was made.
		if left := groupFolders(t, killed.cmd.Process.Pid); len(left) > 0 {
			t.Errorf("there are %q", left)
		}
		return
	}
	before := groupFolders(t, living.cmd.Process.Pid)
	if len(before) == 0 || len(groupFolders(t, killed.cmd.Process.Pid)) == 0 {
		t.Fatal("there are no groups to sweep")
	}
	must(t, killed.cmd.Process.Kill())
	_ = killed.cmd.Wait()
	poll(t, "its plugin has ended", func() bool {
		_, err := os.Stat(filepath.Join("/proc", killed.plugin))
		return errors.Is(err, os.ErrNotExist)
	})
	h := newHost(t, map[string]host.Budget{faults.Good: {Memory: 64 * mib, CPU: 1}})
	open(t, h, faults.Good)
	poll(t, "they are swept", func() bool { return len(groupFolders(t, killed.cmd.Process.Pid)) == 0 })
	if after := groupFolders(t, living.cmd.Process.Pid); len(after) != len(before) {
		t.Errorf("of another host that lives %q, then %q", before, after)
	}
}

// hostProcess is a host in a process of its own.
type hostProcess struct {
	cmd    *exec.Cmd
	plugin string // the pid of its plugin
}

func startHost(t testing.TB) hostProcess {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), hostEnv+"="+faults.Good, pluginsEnv+"="+plugins.Dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return hostProcess{cmd: cmd, plugin: strings.TrimSpace(line)}
}

// groupFolders are those of a host's plugins.
func groupFolders(t testing.TB, hostPID int) (list []string) {
	t.Helper()
	ours := regexp.MustCompile(`^berth-plugin-` + strconv.Itoa(hostPID) + `-`)
	for _, controller := range []string{"memory", "cpu", ""} {
		group, ok := groupsOf(t, "self")[controller]
		if !ok {
			continue
		}
		entries, _ := os.ReadDir(folder(t, controller, group)) // which may not be mounted
		for _, e := range entries {
			if ours.MatchString(e.Name()) {
				list = append(list, controller+": "+e.Name())
			}
		}
	}
	return list
}
