// Package faults builds a plugin that misbehaves as it is told, for the tests of
// everything that must survive it. The plugin speaks berth.v1 over plain
// go-plugin, without the SDK, which would keep it from most of its faults.
//
// What goes wrong at its start is chosen by the name of its binary, see the
// Start constants; what goes wrong later by the path of a Stat call, see the
// Do functions of package main in the plugin folder.
package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"go.uber.org/goleak"
)

// How the plugin starts: NAME of its binary berth-provider-NAME.
const (
	Good         = "good"          // serves
	Slow         = "slow"          // serves after 3 s
	Silent       = "silent"        // never says a word
	Exit7        = "exit7"         // writes a message to stderr and exits 7
	Exit0        = "exit0"         // exits 0 without a handshake
	Garbage      = "garbage"       // writes binary garbage to stdout
	PrintFirst   = "print-first"   // prints a line before its handshake
	PanicInit    = "panic-init"    // panics in an init function
	OtherVersion = "other-version" // speaks protocol 99
	Elsewhere    = "elsewhere"     // listens outside of the folder that it was given
	CloseStdout  = "close-stdout"  // closes its stdout and lives on
	LateExit     = "late-exit"     // closes its stdout and exits 9 a moment later
	NoServer     = "no-server"     // a handshake, and garbage on the socket
	FrozenStart  = "frozen-start"  // a handshake, then SIGSTOP
	Nonsense     = "nonsense"      // a server whose every answer is garbage
	DieDescribe  = "die-describe"  // dies in Describe
	HangDescribe = "hang-describe" // never answers Describe
	Lifeline     = "lifeline"      // serves; no parent death signal, reads the lifeline
	Refuses      = "refuses"       // serves; refuses its configuration
)

// Plugins is a folder of plugin binaries.
type Plugins struct{ Dir string }

// Build builds the plugin into a new folder below dir. The Go tool must be
// there, as it is where tests run.
func Build(dir string) (Plugins, error) {
	binary := filepath.Join(dir, "plugin"+suffix())
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "github.com/berth-dev/berth/test/faults/plugin")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Plugins{}, fmt.Errorf("build the faulty plugin: %w: %s", err, out)
	}
	p := Plugins{Dir: filepath.Join(dir, "plugins")}
	if err := os.Mkdir(p.Dir, 0o755); err != nil {
		return Plugins{}, err
	}
	for _, name := range []string{
		Good, Slow, Silent, Exit7, Exit0, Garbage, PrintFirst, PanicInit, OtherVersion, Elsewhere,
		CloseStdout, LateExit, NoServer, FrozenStart, Nonsense, DieDescribe, HangDescribe, Lifeline, Refuses,
	} {
		if err := os.Link(binary, p.Path(name)); err != nil {
			return Plugins{}, err
		}
	}
	return p, nil
}

// Path is where the plugin of that name is.
func (p Plugins) Path(name string) string {
	return filepath.Join(p.Dir, "berth-provider-"+name+suffix())
}

func suffix() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// Main is what TestMain does where plugins are needed: it builds them, runs the
// tests, and looks for goroutines that were left.
func Main(m interface{ Run() int }, plugins *Plugins) (status int) {
	dir, err := os.MkdirTemp("", "faults")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if *plugins, err = Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if status = m.Run(); status != 0 {
		return status
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
