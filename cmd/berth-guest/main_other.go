//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintf(os.Stderr, "berth-guest %s runs in containers, on Linux\n", version)
	os.Exit(1)
}
