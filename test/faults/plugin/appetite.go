package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/wire"
)

// eaten is what this process has been told to keep in memory.
var eaten struct {
	mu    sync.Mutex
	bytes []byte

	lifelines []io.WriteCloser // of children that eat
}

// consume is what do does of memory, processor time and processes. ok says that the
// verb is one of these.
func consume(verb, arg string) (answer []byte, ok bool, err error) {
	switch verb {
	case "eat": // keep ARGUMENT MiB, all of it touched
		err = eat(arg)
	case "spit": // let go of it
		eaten.mu.Lock()
		eaten.bytes = nil
		eaten.mu.Unlock()
		debug.FreeOSMemory()
	case "spin": // keep a processor busy for ARGUMENT
		err = spin(arg)
	case "fork": // ARGUMENT children, one after the other
		err = fork(arg)
	case "eating-child": // that keeps ARGUMENT MiB, and is in a session of its own: its pid
		answer, err = eatingChild(arg)
	default:
		return nil, false, nil
	}
	return answer, true, err
}

func eat(arg string) error {
	mib, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	eaten.mu.Lock()
	defer eaten.mu.Unlock()
	eaten.bytes = bytes.Repeat([]byte{1}, mib<<20)
	return nil
}

func spin(arg string) error {
	d, err := time.ParseDuration(arg)
	if err != nil {
		return err
	}
	began, busy := time.Now(), true
	for busy {
		busy = time.Since(began) < d
	}
	return nil
}

func fork(arg string) error {
	count, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	for range count {
		if err := exec.Command("true").Run(); err != nil {
			return err
		}
	}
	return nil
}

// eatingChild is this binary again, which eats, and ends when this process does.
func eatingChild(mib string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := detached(self, mib)
	child.Args[0] = wire.BinaryPrefix + eater
	lifeline, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	ready, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		return nil, err
	}
	eaten.mu.Lock()
	eaten.lifelines = append(eaten.lifelines, lifeline)
	eaten.mu.Unlock()
	return []byte(strconv.Itoa(child.Process.Pid)), nil
}

// eater is NAME of such a child.
const eater = "eater"

func beEater() {
	if err := eat(os.Args[1]); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}
