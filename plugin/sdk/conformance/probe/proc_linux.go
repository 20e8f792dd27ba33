package main

import (
	"os"
	"strconv"
	"strings"
)

// stat returns the fields of /proc/PID/stat from the third on: the second, the
// program's name, may hold anything.
func stat(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	return strings.Fields(rest)
}

func startTime(pid int) string {
	if f := stat(pid); len(f) > 19 {
		return f[19]
	}
	return ""
}

func zombie(pid int) bool {
	f := stat(pid)
	return len(f) > 0 && (f[0] == "Z" || f[0] == "X")
}
