//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// lingerTime is how long a descendant stays if nobody stops it: longer than
	// any check, short enough to be gone in the end.
	lingerTime = 5 * time.Minute
	// treePoll is how often tree looks whether all its descendants are noted.
	treePoll = 5 * time.Millisecond
	// stormMost keeps a storm that nobody stops from taking the machine.
	stormMost = 400
	// lateBytes is more than a pipe holds.
	lateBytes = 256 << 10
)

// note writes down who we are: a pid alone may be given again.
func note(pids string) error {
	f, err := os.OpenFile(pids, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(f, "%d %s\n", os.Getpid(), startTime(os.Getpid())); err != nil {
		return err
	}
	return f.Close()
}

type noted struct {
	pid   int
	start string
}

func readNotes(pids string) ([]noted, error) {
	f, err := os.Open(pids)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []noted
	for lines := bufio.NewScanner(f); lines.Scan(); {
		pid, start, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, noted{n, start})
	}
	return all, nil
}

func (n noted) alive() bool {
	return syscall.Kill(n.pid, 0) != syscall.ESRCH && startTime(n.pid) == n.start && !zombie(n.pid)
}

func alive(args []string) error {
	all, err := readNotes(args[0])
	for _, n := range all {
		if n.alive() {
			fmt.Println(n.pid)
		}
	}
	return err
}

func reap(args []string) error {
	all, err := readNotes(args[0])
	for _, n := range all {
		if n.alive() {
			_ = syscall.Kill(n.pid, syscall.SIGKILL) // it may end by itself
		}
	}
	return err
}

// self starts this binary again, from the kernel's own idea of where it is.
func self(args ...string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return exec.Command(path, args...)
}

// shapes are ways in which a descendant gets away from its parent.
func shapes(pids string) map[string]*exec.Cmd {
	shapes := map[string]*exec.Cmd{
		"child":  self("linger", pids),
		"setsid": self("linger", pids),
		"double": self("vanish", pids),
		"noenv":  self("linger", pids),
		"deaf":   self("linger", pids, "deaf"),
	}
	for name, cmd := range shapes {
		if name != "child" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		}
	}
	shapes["noenv"].Env = []string{}
	return shapes
}

// tree starts one descendant of each shape and says ready when all have noted
// themselves. The shape "self-deaf" makes this process itself ignore TERM, and
// "flood" makes it write for ever after it is ready.
func tree(args []string) error {
	pids := args[0]
	want, then := 1, func([]string) error { time.Sleep(lingerTime); return nil }
	if err := note(pids); err != nil {
		return err
	}
	for _, shape := range args[1:] {
		if shape == "self-deaf" {
			signal.Ignore(syscall.SIGTERM)
			continue
		}
		if shape == "flood" {
			then = printForEver
			continue
		}
		cmd := shapes(pids)[shape]
		if cmd == nil {
			return fmt.Errorf("no shape %q", shape)
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		want++
	}
	for {
		all, err := readNotes(pids)
		if err != nil {
			return err
		}
		if len(all) >= want {
			break
		}
		time.Sleep(treePoll)
	}
	fmt.Println("ready")
	return then(nil)
}

func linger(args []string) error {
	if len(args) > 1 && args[1] == "deaf" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	}
	if err := note(args[0]); err != nil {
		return err
	}
	time.Sleep(lingerTime)
	return nil
}

func vanish(args []string) error {
	cmd := self("linger", args[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

func storm(args []string) error {
	if err := note(args[0]); err != nil {
		return err
	}
	fmt.Println("ready")
	for range stormMost {
		cmd := self("linger", args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	time.Sleep(lingerTime)
	return nil
}

func trap(args []string) error {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGTERM)
	fmt.Println("ready")
	select {
	case <-got:
		return os.WriteFile(args[0], nil, 0o644)
	case <-time.After(lingerTime):
		return errors.New("nobody sent TERM")
	}
}

// background writes N bytes and ends, leaving a child that holds its stdout.
func background(args []string) error {
	n, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	ready, told, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := self("child", args[0], args[1], args[3])
	cmd.Stdout = os.Stdout
	cmd.ExtraFiles = []*os.File{told}
	if err := cmd.Start(); err != nil {
		return err
	}
	told.Close()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("the child did not start: %w", err)
	}
	return writePattern(os.Stdout, n)
}

// child holds stdout: "hold" says nothing, "write" writes for ever, "late"
// waits for its parent's end, writes more than a pipe holds, and makes FILE.
func child(args []string) error {
	pids, mode, file := args[0], args[1], args[2]
	if err := note(pids); err != nil {
		return err
	}
	parent := os.Getppid()
	told := os.NewFile(3, "told")
	if _, err := told.Write([]byte{1}); err != nil {
		return err
	}
	told.Close()
	switch mode {
	case "hold":
		time.Sleep(lingerTime)
	case "write", "late":
		for os.Getppid() == parent {
			time.Sleep(time.Millisecond)
		}
		if mode == "write" {
			return printForEver(nil)
		}
		if err := writePattern(os.Stdout, lateBytes); err != nil {
			return err
		}
		return os.WriteFile(file, nil, 0o644)
	}
	return nil
}
