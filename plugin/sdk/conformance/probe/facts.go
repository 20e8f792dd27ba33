//go:build unix

package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

func printArgs(args []string) error {
	for _, arg := range args {
		fmt.Println(hex.EncodeToString([]byte(arg)))
	}
	return nil
}

func printEnv([]string) error {
	for _, kv := range os.Environ() {
		fmt.Println(hex.EncodeToString([]byte(kv)))
	}
	return nil
}

// printDir asks the kernel: os.Getwd would believe $PWD.
func printDir([]string) error {
	dir, err := syscall.Getwd()
	fmt.Print(dir)
	return err
}

func exit(args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	os.Exit(code)
	return nil
}

func signalSelf(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if err := syscall.Kill(os.Getpid(), syscall.Signal(n)); err != nil {
		return err
	}
	time.Sleep(time.Minute) // until it arrives
	return fmt.Errorf("signal %d did not end us", n)
}

func sleep(args []string) error {
	d, err := time.ParseDuration(args[0])
	time.Sleep(d)
	return err
}

func touch(args []string) error {
	for _, name := range args {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func exists(args []string) error {
	for _, name := range args {
		switch _, err := os.Lstat(name); {
		case err == nil:
			fmt.Println("yes")
		case errors.Is(err, fs.ErrNotExist):
			fmt.Println("no")
		default:
			return err
		}
	}
	return nil
}

func mkdir(args []string) error {
	for _, name := range args {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(args []string) error {
	b, err := hex.DecodeString(args[1])
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], b, 0o644)
}

func owner(args []string) error {
	var st syscall.Stat_t
	if err := syscall.Lstat(args[0], &st); err != nil {
		return err
	}
	fmt.Println(st.Uid, os.Geteuid())
	return nil
}

func makeFIFO(args []string) error { return syscall.Mkfifo(args[0], 0o644) }

// makeSocket binds by a relative name: the path of a socket may have 107 bytes.
func makeSocket(args []string) error {
	if err := os.Chdir(filepath.Dir(args[0])); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Base(args[0]), Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}

func await(args []string) error {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	for {
		_, err := os.Lstat(args[0])
		if err == nil {
			return writePattern(os.Stdout, n)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(barrierPoll)
	}
}

// barrierPoll is how often barrier and await look.
const barrierPoll = 5 * time.Millisecond

func barrier(args []string) error {
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(args[0], strconv.Itoa(os.Getpid())), nil, 0o644); err != nil {
		return err
	}
	for {
		entries, err := os.ReadDir(args[0])
		if err != nil || len(entries) >= want {
			return err
		}
		time.Sleep(barrierPoll)
	}
}
