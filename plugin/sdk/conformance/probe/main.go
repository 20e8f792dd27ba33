//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
)

// command is one subcommand. An error ends the probe with status 99, which no
// check asks for.
type command struct {
	usage string
	run   func(args []string) error
}

const statusFault = 99

func commands() map[string]command {
	return map[string]command{
		"args":       {"ARG… — each in hexadecimal on a line of its own", printArgs},
		"env":        {"— NAME=VALUE in hexadecimal, one a line", printEnv},
		"cwd":        {"— the directory that the kernel knows", printDir},
		"state":      {"— open descriptors and signal sets", printState},
		"exit":       {"N", exit},
		"signal":     {"N — ends itself by that signal", signalSelf},
		"print":      {"HEX-STDOUT HEX-STDERR", printBytes},
		"pattern":    {"N-STDOUT N-STDERR — pattern bytes", printPattern},
		"drip":       {"N-CHUNKS PAUSE CODE — pattern chunks on both streams, one a pause; exits CODE", drip},
		"dump":       {"N-STDOUT N-STDERR — as pattern, and then waits", dump},
		"yes":        {"— pattern bytes for ever", printForEver},
		"flood":      {"FILE — as yes, and counts in FILE what was written", flood},
		"cat":        {"— stdin to stdout", cat},
		"show":       {"FILE — its content", show},
		"sum":        {"[FILE] — bytes and SHA-256 of stdin or FILE", sum},
		"ask":        {"— says ready, waits for a line, repeats it", ask},
		"sleep":      {"DURATION", sleep},
		"touch":      {"FILE… — makes empty files", touch},
		"exists":     {"FILE… — yes or no, one a line", exists},
		"mkdir":      {"DIR… — with parents", mkdir},
		"write":      {"FILE HEX", writeFile},
		"owner":      {"FILE — its uid and our own", owner},
		"fifo":       {"FILE", makeFIFO},
		"socket":     {"FILE", makeSocket},
		"await":      {"FILE N — waits for FILE, then writes N pattern bytes", await},
		"barrier":    {"DIR N — waits until N of us are there", barrier},
		"trap":       {"FILE — says ready; on TERM makes FILE and exits 0", trap},
		"tree":       {"PIDS SHAPE… — starts descendants, says ready, waits", tree},
		"linger":     {"PIDS [deaf] — notes its pid in PIDS and waits", linger},
		"vanish":     {"PIDS — starts a linger and exits at once", vanish},
		"storm":      {"PIDS — starts detached lingers for ever", storm},
		"background": {"PIDS MODE N FILE — writes N bytes and leaves a child that holds stdout", background},
		"child":      {"PIDS MODE FILE — the child of background", child},
		"alive":      {"PIDS — those noted there that live", alive},
		"reap":       {"PIDS — kills those noted there", reap},
	}
}

func main() {
	all := commands()
	if len(os.Args) < 2 || os.Args[1] == "help" {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Println("probe", name, all[name].usage)
		}
		return
	}
	cmd, ok := all[os.Args[1]]
	if !ok {
		fmt.Fprintf(os.Stderr, "probe: no subcommand %q\n", os.Args[1])
		os.Exit(statusFault)
	}
	if err := cmd.run(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "probe %s: %v\n", os.Args[1], err)
		os.Exit(statusFault)
	}
}
