//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/test/durable"
)

// TestMain makes this binary also what the guests of scripts start commands with.
func TestMain(m *testing.M) {
	posix.Main()
	os.Exit(m.Run())
}

// The scripts in testdata run the real binaries, each in a folder of its own
// with its own home. At the end of each nothing may be left but workspaces.
func TestScripts(t *testing.T) {
	bin := buildBinaries(t)
	// Apart: whatever plugin lies beside berth is a provider of every script.
	durablePlugin := filepath.Join(t.TempDir(), "berth-provider-durable")
	goBuild(t, "../../test/durable/plugin", durablePlugin, ".")
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Deadline:           time.Now().Add(suiteTimeout),
		Setup: func(env *testscript.Env) error {
			if err := layOut(env, bin); err != nil {
				return err
			}
			t := env.T().(testing.TB)
			env.Values[testingKey{}] = t
			keepCollector(env, t)
			env.Defer(func() { checkNothingIsLeft(t, env.WorkDir) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit":       cmdExit,
			"during":     cmdDuring,
			"idle-stdin": cmdIdleStdin,
			"request":    cmdRequest,
			"collector":  cmdCollector,
			"trace":      cmdTrace,
			"engine":     func(ts *testscript.TestScript, neg bool, args []string) { cmdEngine(ts, neg, args, durablePlugin) },
		},
	})
}

// testingKey is that of a script's testing.T.
type testingKey struct{}

// buildBinaries builds berth and its plugins, berth itself with the race
// detector if the test has it.
func buildBinaries(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	build := func(dir, out string, args ...string) { goBuild(t, dir, filepath.Join(bin, out), args...) }
	var race []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				race = append(race, "-race")
			}
		}
	}
	build(".", "berth", append(race, ".")...)
	build("../berth-provider-state", "berth-provider-state", ".")
	build("../../examples/provider-local", "berth-provider-local", ".")
	return bin
}

func goBuild(t *testing.T, dir, out string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-o", out}, args...)...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s in %s: %v\n%s", cmd, dir, err, output)
	}
}

// layOut gives a script its own copies of the binaries, by which their processes
// are known, and its own folders.
func layOut(env *testscript.Env, bin string) error {
	work := env.WorkDir
	for _, dir := range []string{"bin", "home", "config", "data", "tmp", "run"} {
		if err := os.MkdirAll(filepath.Join(work, dir), 0o700); err != nil {
			return err
		}
	}
	binaries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, b := range binaries {
		if err := os.Link(filepath.Join(bin, b.Name()), filepath.Join(work, "bin", b.Name())); err != nil {
			return err
		}
	}
	env.Setenv("PATH", filepath.Join(work, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	env.Setenv("HOME", filepath.Join(work, "home"))
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(work, "config"))
	env.Setenv("XDG_DATA_HOME", filepath.Join(work, "data"))
	env.Setenv("XDG_RUNTIME_DIR", filepath.Join(work, "run"))
	env.Setenv("TMPDIR", filepath.Join(work, "tmp"))
	return nil
}

const (
	// leftoverTimeout is well over the two seconds in which a plugin ends after
	// its host, on a machine that has other things to do.
	leftoverTimeout = 20 * time.Second
	// suiteTimeout ends a script that hangs, with the stacks of what hangs, before
	// go test ends everything at its ten minutes.
	suiteTimeout = 9 * time.Minute
	// scriptTimeout bounds what must come soon, on such a machine.
	scriptTimeout = time.Minute
	pollInterval  = 20 * time.Millisecond
)

// checkNothingIsLeft waits until no process of a script's is there, and no file
// in its temporary folders.
func checkNothingIsLeft(t testing.TB, work string) {
	t.Helper()
	deadline := time.Now().Add(leftoverTimeout)
	for {
		left := append(processesIn(work), filesIn(filepath.Join(work, "tmp"), filepath.Join(work, "run"))...)
		switch {
		case len(left) == 0:
			return
		case time.Now().After(deadline):
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			return
		}
		time.Sleep(pollInterval)
	}
}

// processesIn finds the processes that run a binary below a folder, or are in
// it, or were started with a variable that names it.
func processesIn(folder string) []string {
	var found []string
	pids, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range pids {
		exe, _ := os.Readlink(filepath.Join(proc, "exe"))
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if strings.HasPrefix(exe, folder) || strings.HasPrefix(cwd, folder) || bytes.Contains(environ, []byte(folder)) {
			cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
			found = append(found, fmt.Sprintf("process %s: %s", filepath.Base(proc), bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func filesIn(folders ...string) []string {
	var found []string
	for _, folder := range folders {
		_ = filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != folder {
				found = append(found, "file "+path)
			}
			return nil
		})
	}
	return found
}

// engineConfig is that of a script with an engine.
const engineConfig = `providers:
  local: {}
  durable: {config: {root: %q, engine: %q}}
`

// cmdEngine starts what guests run in, and configures the provider durable.
func cmdEngine(ts *testscript.TestScript, neg bool, args []string, plugin string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: engine")
	}
	t := ts.Value(testingKey{}).(testing.TB)
	ts.Check(os.Link(plugin, ts.MkAbs("bin/berth-provider-durable")))
	config := durable.StartEngine(t, ts.MkAbs("guests")).Config()
	ts.Check(os.WriteFile(ts.MkAbs("berth.yaml"), fmt.Appendf(nil, engineConfig, config["root"], config["engine"]), 0o600))
}

// cmdExit is exec for a command that must end with a certain exit code.
func cmdExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE program [args...]")
	}
	checkCode(ts, args[0], ts.Exec(args[1], args[2:]...))
}

func checkCode(ts *testscript.TestScript, want string, err error) {
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

// cmdDuring runs a command, does something to it when its output holds the word
// ready, and checks its exit code. Its outputs are then in the files stdout.txt
// and stderr.txt.
func cmdDuring(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: during ACTION CODE program [args...]")
	}
	stdout, stderr := ts.MkAbs("stdout.txt"), ts.MkAbs("stderr.txt")
	cmd, finish := startInScript(ts, args[2:], stdout, stderr)
	waitFor(ts, func() bool {
		data, _ := os.ReadFile(stdout)
		return bytes.Contains(data, []byte("ready"))
	}, "the command to be ready")
	var err error
	switch args[0] {
	case "INT", "TERM", "HUP", "KILL":
		err = exec.Command("kill", "-"+args[0], strconv.Itoa(cmd.Process.Pid)).Run()
	case "INT-INT":
		err = cmd.Process.Signal(os.Interrupt)
		waitFor(ts, func() bool {
			// Until it has ended, if the first was enough.
			return cmd.Process.Signal(os.Interrupt) != nil
		}, "a second interrupt to end it")
	case "kill-plugin":
		err = exec.Command("kill", "-KILL", strconv.Itoa(pluginOf(ts, cmd.Process.Pid))).Run()
	default:
		ts.Fatalf("unknown action %s", args[0])
	}
	ts.Check(err)
	began := time.Now()
	err = finish()
	ts.Logf("it ended after %v", time.Since(began).Round(time.Millisecond))
	checkCode(ts, args[1], err)
}

// cmdIdleStdin runs a command whose standard input is open and never written.
func cmdIdleStdin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: idle-stdin CODE program [args...]")
	}
	r, w, err := os.Pipe()
	ts.Check(err)
	defer w.Close()
	defer r.Close()
	_, finish := startInScript(ts, args[1:], ts.MkAbs("stdout.txt"), ts.MkAbs("stderr.txt"), r)
	checkCode(ts, args[0], finish())
}

// startInScript starts a command as exec in a script does; finish waits for it,
// and kills it at a time when it should have long ended.
func startInScript(ts *testscript.TestScript, args []string, stdout, stderr string, stdin ...*os.File) (_ *exec.Cmd, finish func() error) {
	path := args[0]
	if !strings.Contains(path, "/") {
		path = filepath.Join(ts.Getenv("WORK"), "bin", path)
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "WORK", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "TMPDIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var files []*os.File
	for _, name := range []string{stdout, stderr} {
		f, err := os.Create(name)
		ts.Check(err)
		files = append(files, f)
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	if len(stdin) > 0 {
		cmd.Stdin = stdin[0]
	}
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return cmd, func() error {
		defer func() {
			for _, f := range files {
				f.Close()
				data, _ := os.ReadFile(f.Name())
				ts.Logf("[%s]\n%s", filepath.Base(f.Name()), data)
			}
		}()
		select {
		case err := <-ended:
			return err
		case <-time.After(scriptTimeout):
			cmd.Process.Kill()
			<-ended
			return fmt.Errorf("%s did not end within %v", args[0], scriptTimeout)
		}
	}
}

func waitFor(ts *testscript.TestScript, done func() bool, what string) {
	for deadline := time.Now().Add(scriptTimeout); !done(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			ts.Fatalf("waited %v for %s", scriptTimeout, what)
		}
	}
}

// pluginOf finds the one plugin that a berth process has started.
func pluginOf(ts *testscript.TestScript, berth int) int {
	pids, _ := filepath.Glob("/proc/[0-9]*")
	var found []int
	for _, proc := range pids {
		stat, _ := os.ReadFile(filepath.Join(proc, "stat"))
		exe, _ := os.Readlink(filepath.Join(proc, "exe"))
		// pid (name) state ppid …, and a name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(berth) && strings.Contains(exe, "berth-provider-") {
			pid, err := strconv.Atoi(filepath.Base(proc))
			ts.Check(err)
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		ts.Fatalf("%d plugins of process %d, want 1", len(found), berth)
	}
	return found[0]
}
