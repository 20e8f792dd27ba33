package posix_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

var marks atomic.Int64

// newMark is the argument of a sleep that no other process has.
func newMark() string { return fmt.Sprintf("98765.%d%06d", os.Getpid(), marks.Add(1)) }

// treeScripts start processes that detach themselves in every way; $1 is their
// mark. They are those of which a process group, an environment variable or the
// parents' chain would lose some.
var treeScripts = []struct {
	name, script string
	processes    int // to wait for before it is stopped
}{
	{"child", `sleep $1 & sleep $1`, 2},
	{"setsid", `setsid sleep $1 & sleep $1`, 2},
	{"double fork", `(setsid sh -c 'sleep $1 & sleep $1 &' sh $1 &); sleep $1`, 3},
	{"clean environment", `env -i setsid nohup sleep $1 >/dev/null 2>&1 & sleep $1`, 2},
	{"TERM ignored", `trap '' TERM; setsid sh -c 'trap "" TERM; sleep $1; sleep $1' sh $1 & sleep $1; sleep $1`, 2},
	{"only a child ignores TERM", `setsid sh -c 'trap "" TERM; while :; do sleep $1; done' sh $1 & sleep $1`, 2},
	{"stopped", `sleep $1 & kill -STOP $!; sleep $1`, 2},
	{"storm", `for loop in 1 2; do (while :; do (setsid sleep $1 &) ; done) & done; sleep $1`, 60},
	{"the command has gone", `(sleep $1; sleep $1) & exec sleep $1`, 2},
}

func TestC5_StopEndsTheWholeTree(t *testing.T) {
	ws := openWorkspace(t)
	for _, grace := range []time.Duration{0, 100 * time.Millisecond} {
		for _, test := range treeScripts {
			t.Run(fmt.Sprintf("%s, grace %v", test.name, grace), func(t *testing.T) {
				mark := newMark()
				p := start(t, ws, script(test.script, mark))
				eventually(t, "the tree is there", func() bool { return len(processes(t, mark)) >= test.processes })
				begun := time.Now()
				if survivors := p.Stop(grace); survivors != "" {
					t.Errorf("survivors: %s", survivors)
				}
				if left := processes(t, mark); len(left) > 0 {
					t.Errorf("left after %v: %v", time.Since(begun), left)
				}
				if code, err := p.Wait(); err != nil || code != 128+9 && code != 128+15 {
					t.Errorf("Wait: %d, %v", code, err)
				}
				if survivors := p.Stop(grace); survivors != "" {
					t.Errorf("a second Stop: %s", survivors)
				}
			})
		}
	}
	if r := run(t, ws, script("echo fine")); r.stdout != "fine\n" {
		t.Errorf("afterwards: %+v", r)
	}
}

// TestC5_GraceIsTheTreesOwn lets a tree end by itself at TERM.
func TestC5_GraceIsTheTreesOwn(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, script(`trap 'echo cleaned; exit 5' TERM; echo ready; while :; do sleep 0.02; done`))
	if _, err := io.ReadFull(p.Stdout(), make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	p.Stop(time.Minute)
	if took := time.Since(begun); took > soon {
		t.Errorf("took %v of a minute's grace", took)
	}
	if r := wait(t, p); r.code != 5 || r.stdout != "cleaned\n" {
		t.Errorf("%+v", r)
	}
}

// TestC5_ProcessWithoutItsFirstThread stops one that looks like a zombie.
func TestC5_ProcessWithoutItsFirstThread(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, sdk.Command{
		Args: []string{"/bin/sh", "-c", `echo $$; exec "$0"`, copySelf(t)},
		Env:  map[string]string{roleEnv: roleHeadless},
	})
	var pid int
	var ready string
	if _, err := fmt.Fscan(p.Stdout(), &pid, &ready); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its first thread has ended", func() bool { return !alive(pid) })
	if survivors := p.Stop(50 * time.Millisecond); survivors != "" || exists(pid) {
		t.Errorf("survivors %q, there: %v", survivors, exists(pid))
	}
	if code, err := p.Wait(); err != nil || code != 128+9 {
		t.Errorf("Wait: %d, %v", code, err)
	}
}

// TestC5_StopsAtTheSameTime asks many times, none of which puts the end off.
func TestC5_StopsAtTheSameTime(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, script(`trap '' TERM; echo ready; while :; do sleep 0.02; done`))
	if _, err := io.ReadFull(p.Stdout(), make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	const grace = 500 * time.Millisecond
	first := make(chan string, 1)
	go func() { first <- p.Stop(grace) }()
	answers := make(chan string, 4)
	for range cap(answers) {
		go func() { answers <- p.Stop(time.Hour) }()
	}
	for _, answer := range []chan string{first, answers, answers, answers, answers} {
		select {
		case survivors := <-answer:
			if survivors != "" {
				t.Errorf("survivors: %s", survivors)
			}
		case <-time.After(soon):
			t.Fatalf("a Stop was not answered within %v", soon)
		}
	}
	if code, err := p.Wait(); err != nil || code != 128+9 {
		t.Errorf("Wait: %d, %v: its supervisor should not have been killed", code, err)
	}
}

// TestC5_AnotherUser stops a process of another user, where this one may; as
// another user than root, one whose user is its own.
func TestC5_AnotherUser(t *testing.T) {
	ws := openWorkspace(t)
	mark := newMark()
	as := "--no-new-privs"
	if os.Geteuid() == 0 {
		as = "--reuid 65534 --regid 65534 --clear-groups"
	}
	p := start(t, ws, script(`setpriv `+as+` setsid sleep $1 & setpriv `+as+` sleep $1; :`, mark))
	eventually(t, "both are there", func() bool {
		n := 0
		for _, pid := range processes(t, mark) {
			if strings.HasPrefix(commandLine(pid), "sleep\x00") {
				n++
			}
		}
		return n == 2
	})
	if survivors := p.Stop(0); survivors != "" || len(processes(t, mark)) > 0 {
		t.Errorf("survivors %q, left %v", survivors, processes(t, mark))
	}
}

func commandLine(pid int) string {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(args)
}

// TestC5_WhatCannotBeKilledIsReported needs a program that takes the rights of
// its owner, which only root can make; without, what is killed is reported
// as nothing (and TestSurvivors has the rest).
func TestC5_WhatCannotBeKilledIsReported(t *testing.T) {
	dir, err := os.MkdirTemp("", "posix-survivor") //nolint:usetesting // others cannot enter a TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root := os.Geteuid() == 0
	binary := copySelf(t)
	program := filepath.Join(dir, "program")
	for _, do := range [][]string{{"chmod", "0777", dir}, {"cp", binary, program}, {"cp", binary, filepath.Join(dir, "plugin")}, {"chmod", "4755", program}} {
		if out, err := exec.Command(do[0], do[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", do, err, out)
		}
	}
	cmd := roleCommand(filepath.Join(dir, "plugin"), roleStop, dir)
	text := "echo $$; exec sleep 987"
	if root {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		text = fmt.Sprintf("%s=%s %s; :", roleEnv, roleBecomeRoot, program)
	}
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	var pid, took int
	if _, err := fmt.Sscan(lines[0]+" "+lines[1], &pid, &took); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if root {
		if want := fmt.Sprintf("process %d (program): operation not permitted", pid); !strings.Contains(lines[2], want) {
			t.Errorf("survivors %q, want %q", lines[2], want)
		}
		kill(t, pid)
	} else if lines[2] != "" || alive(pid) {
		t.Errorf("survivors %q, alive %v", lines[2], alive(pid))
	}
	if took := time.Duration(took) * time.Millisecond; took > soon {
		t.Errorf("took %v", took)
	}
	eventually(t, "the helpers have ended", func() bool { return len(processes(t, dir)) == 0 })
}

// TestTreesEndWithTheirOwner kills the process that runs commands, alone and with
// its group, as a host does.
func TestTreesEndWithTheirOwner(t *testing.T) {
	for _, group := range []bool{false, true} {
		for _, test := range treeScripts {
			t.Run(fmt.Sprintf("%s, group %v", test.name, group), func(t *testing.T) {
				mark, binary := newMark(), copySelf(t)
				cmd := roleCommand(binary, roleHold, t.TempDir())
				cmd.Stdin = strings.NewReader(strings.ReplaceAll(test.script, "$1", mark))
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
				eventually(t, "the tree is there", func() bool { return len(processes(t, mark)) >= test.processes })
				pid := cmd.Process.Pid
				if group {
					pid = -pid
				}
				begun := time.Now()
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the tree has ended", func() bool { return len(processes(t, mark)) == 0 })
				eventually(t, "the helpers have ended", func() bool { return len(processes(t, binary)) == 0 })
				t.Logf("ended after %v", time.Since(begun))
			})
		}
	}
}

// TestC8_ChildrenOutliveTheOwner is of what a command that had ended left: it is
// nothing of the owner's, and may write on.
func TestC8_ChildrenOutliveTheOwner(t *testing.T) {
	mark, dir := newMark(), t.TempDir()
	cmd := roleCommand(copySelf(t), roleHold, dir)
	cmd.Stdin = strings.NewReader(`sh -c 'while :; do echo noise; echo beat >>beats; sleep 0.01; done' ` + mark + ` & echo $! >pid`)
	out, err := cmd.Output() // ends with the command, and the owner with it
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pid := readPID(t, filepath.Join(dir, "pid"))
	defer kill(t, pid)
	beats := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "beats"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := beats()
	eventually(t, "the child writes on", func() bool { return beats() > before+100 })
}

// TestOrphansAreReaped is of what a command leaves behind in numbers while it runs:
// each would take one of the processes that it may have.
func TestOrphansAreReaped(t *testing.T) {
	ws := openWorkspace(t)
	p := start(t, ws, script(`i=0; while [ $i -lt 200 ]; do (: & :); i=$((i+1)); done; echo $PPID; exec sleep 987`))
	var supervisor int
	if _, err := fmt.Fscan(p.Stdout(), &supervisor); err != nil {
		t.Fatal(err)
	}
	eventually(t, "only the command is left", func() bool {
		children := 0
		for _, parent := range parents(t) {
			if parent == supervisor {
				children++
			}
		}
		return children == 1
	})
}

// TestB3_KilledSupervisor is of a supervisor that is itself killed, or stopped.
func TestB3_KilledSupervisor(t *testing.T) {
	ws := openWorkspace(t)
	for name, sig := range map[string]unix.Signal{"killed": unix.SIGKILL, "stopped": unix.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			mark := newMark()
			p := start(t, ws, script(`echo $PPID; setsid sleep $1 & sleep $1`, mark))
			line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the tree is there", func() bool { return len(processes(t, mark)) >= 2 })
			var supervisor int
			if _, err := fmt.Sscan(line, &supervisor); err != nil {
				t.Fatal(err)
			}
			if err := unix.Kill(supervisor, sig); err != nil {
				t.Fatal(err)
			}
			if survivors := p.Stop(0); survivors != "" {
				t.Errorf("survivors: %s", survivors)
			}
			if left := processes(t, mark); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			switch code, err := p.Wait(); {
			case sig == unix.SIGKILL && err == nil:
				t.Errorf("Wait: %d, want an error: how it ended is not known", code)
			case sig == unix.SIGSTOP && (err != nil || code != 128+9):
				t.Errorf("Wait: %d, %v, want it killed by a supervisor that went on", code, err)
			}
			if r := run(t, ws, script("echo fine")); r.stdout != "fine\n" {
				t.Errorf("afterwards: %+v", r)
			}
		})
	}
}

// TestKilledHelpers kills all of them between two commands.
func TestKilledHelpers(t *testing.T) {
	ws := openWorkspace(t)
	for range 5 {
		r := run(t, ws, script(`echo $PPID; sed -n 's/^PPid:\t//p' /proc/$PPID/status`))
		var supervisor, keeper int
		if _, err := fmt.Sscan(r.stdout, &supervisor, &keeper); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		for _, helper := range []int{keeper, supervisor} {
			// Nothing else may be killed by mistake, such as who takes orphans in.
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", helper)); err != nil || !bytes.HasPrefix(line, []byte("berth-supervisor\x00")) {
				t.Fatalf("process %d is no helper: %q, %v", helper, line, err)
			}
		}
		kill(t, keeper)
		kill(t, supervisor)
		eventually(t, "both have ended", func() bool { return !exists(keeper) && !exists(supervisor) }) // a zombie may have threads that still end
	}
}

// TestStoppedHelpers is of commands that stop their supervisor and its keeper:
// they end as if they had not, others start, and closing ends all the same.
func TestStoppedHelpers(t *testing.T) {
	ws, err := posix.Open(posix.Config{Dir: t.TempDir(), Env: testEnv})
	must(t, err)
	begun := time.Now()
	var stoppers sync.WaitGroup
	for range 8 { // more than were idle
		p, err := ws.Start(t.Context(), script(`kill -STOP $(sed -n 's/^PPid:\t//p' /proc/$PPID/status) $PPID; exit 7`))
		must(t, err)
		stoppers.Go(func() {
			if r := wait(t, p); r.code != 7 {
				t.Errorf("%+v", r)
			}
			must(t, p.Close())
		})
	}
	stoppers.Wait()
	must(t, ws.Close())
	if took := time.Since(begun); took > soon {
		t.Errorf("all that took %v", took)
	}
	eventually(t, "the helpers have ended", func() bool { return helpers(t) == 0 })
}

func TestRefusedWithoutMain(t *testing.T) {
	cmd := roleCommand("/proc/self/exe", roleNoMain, t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "posix.Main") {
		t.Errorf("%v: %s, want an error that names posix.Main", err, out)
	}
}

// TestBinaryReplaced runs commands after a swap, by which the path names another
// program or none.
func TestBinaryReplaced(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"replaced": func(path string) error {
			other := path + ".new"
			if err := os.WriteFile(other, []byte("#!/bin/sh\nexit 9\n"), 0o755); err != nil {
				return err
			}
			return os.Rename(other, path)
		},
		"deleted": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			binary := copySelf(t)
			cmd := roleCommand(binary, roleReruns, t.TempDir())
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(stdout)
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(change(binary), stdin.Close()); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(out)
			if err := cmd.Wait(); err != nil || string(rest) != "50 runs\n" {
				t.Errorf("%q, %v", rest, err)
			}
			eventually(t, "the helpers have ended", func() bool { return len(processes(t, binary)) == 0 })
		})
	}
}

// TestNothingGrows runs hundreds of commands of all kinds.
func TestNothingGrows(t *testing.T) {
	ws := openWorkspace(t)
	round := func() {
		run(t, ws, script("echo out; echo err >&2"))
		run(t, ws, sdk.Command{Args: []string{"no-such-program"}})
		if _, err := ws.Start(t.Context(), sdk.Command{Args: []string{"true"}, Dir: "no-such-dir"}); err == nil {
			t.Fatal("started in a folder that is not there")
		}
		p, err := ws.Start(t.Context(), script("sleep 987 & sleep 987"))
		if err != nil {
			t.Fatal(err)
		}
		p.Stop(0)
		_ = p.Close()
		p, err = ws.Start(t.Context(), sdk.Command{Args: []string{"cat"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Close() // while it runs
	}
	// A helper has a goroutine and a descriptor here. How many are idle is a matter
	// of chance up to a limit; what there is beside them must stay the same.
	const mostHelpers = 4 // three idle supervisors and their keeper
	type usage struct{ helpers, goroutines, descriptors int }
	count := func() usage {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		n := helpers(t)
		return usage{n, runtime.NumGoroutine() - n, len(fds) - n}
	}
	for range 10 {
		round()
	}
	var before, after usage
	eventually(t, "rest", func() bool { before = count(); time.Sleep(50 * time.Millisecond); return before == count() })
	for range 60 { // 300 starts
		round()
	}
	eventually(t, "as before", func() bool {
		after = count()
		t.Log(before, "→", after)
		return after.helpers <= mostHelpers && after.goroutines <= before.goroutines && after.descriptors <= before.descriptors
	})
}

// helpers counts the helper processes of this one.
func helpers(t testing.TB) (n int) {
	self := strconv.Itoa(os.Getpid())
	for _, pid := range processes(t, "berth-supervisor") {
		for p := pid; p > 1; {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
			if err != nil {
				break
			}
			parent := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[1]
			if parent == self {
				n++
				break
			}
			if _, err := fmt.Sscan(parent, &p); err != nil {
				break
			}
		}
	}
	return n
}
