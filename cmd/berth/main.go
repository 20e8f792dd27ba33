// Command berth opens workspaces, runs commands in them, moves files, and looks
// after what is left: berth --help.
package main

import (
	"os"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(newApp(os.Stdin, os.Stdout, os.Stderr).run(os.Args[1:]))
}
