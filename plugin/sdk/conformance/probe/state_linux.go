package main

import (
	"fmt"
	"os"
	"strings"
)

// maxDescriptor is how far printState looks: leaked descriptors are low.
const maxDescriptor = 256

// printState tells what was inherited: descriptors beyond 0 to 2, and signals
// that are blocked or ignored.
func printState([]string) error {
	for fd := 3; fd < maxDescriptor; fd++ {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			continue
		}
		if ownDescriptor(target) {
			continue
		}
		fmt.Printf("fd %d %q\n", fd, target)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if (name == "SigBlk" || name == "SigIgn") && strings.Trim(value, "0") != "" {
			fmt.Println(name, value)
		}
	}
	return nil
}

// ownDescriptor tells what Go's runtime opens itself: its poller, and the
// cgroup's CPU limit, which it reads again from time to time.
func ownDescriptor(target string) bool {
	return target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" ||
		strings.HasPrefix(target, "/sys/fs/cgroup/") || strings.HasSuffix(target, "/cpu.max")
}
