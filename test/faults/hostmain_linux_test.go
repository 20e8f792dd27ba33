package faults_test

import (
	"context"
	"crypto/fips140"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// hostEnv makes the test binary a host in a process of its own, for what can only be
// tested on one that dies; pluginsEnv is its folder of plugins.
const (
	hostEnv    = "BERTH_TEST_FAULTS_HOST"
	pluginsEnv = "BERTH_TEST_FAULTS_PLUGINS"
)

// What the host does once its plugins run and it has told their pids, one a line.
const (
	echoes   = "echoes" // copies its stdin to its stdout
	drains   = "drains" // makes a call of 1 s, and closes at SIGINT
	waits    = "waits"  // waits
	tells    = "tells"  // tells whether FIPS 140 is on here, and in a plugin
	callDone = "the call has succeeded"
)

func hostMain(kind string) int {
	config := host.Config{PluginDirs: []string{os.Getenv(pluginsEnv)}, Dir: os.TempDir(), DataDir: os.TempDir(), Providers: map[string]host.Provider{}}
	for _, name := range []string{faults.Good, faults.Lifeline, withSDK} {
		config.Providers[name] = host.Provider{InheritEnv: []string{"GODEBUG"}}
	}
	h, err := host.New(config)
	if err != nil {
		return failed(err)
	}
	workspaces := map[string]workspace.Workspace{}
	for name := range config.Providers {
		if workspaces[name], err = h.Workspace(name); err == nil {
			_, err = workspaces[name].WorkingDir(context.Background())
		}
		if err != nil {
			return failed(err)
		}
	}
	interrupted := make(chan os.Signal, 1)
	if kind == drains {
		signal.Notify(interrupted, os.Interrupt)
	}
	for _, st := range h.Providers() {
		fmt.Println(st.PID)
	}
	switch kind {
	case echoes:
		// The plugin reads what it has on its own stdin meanwhile.
		if info, err := workspaces[faults.Good].Stat(context.Background(), "/stdin"); err != nil || info.Target != "" {
			return failed(fmt.Errorf("the plugin read %q, %w", info.Target, err))
		}
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return failed(err)
		}
	case tells:
		info, err := workspaces[faults.Good].Stat(context.Background(), "/fips")
		if err == nil {
			err = workspaces[withSDK].WriteFile(context.Background(), "f", make([]byte, 1<<20))
		}
		fmt.Println(fips140.Enabled(), info.Target, err)
	case drains:
		called := make(chan error, 1)
		go func() { called <- workspaces[faults.Good].MkdirAll(context.Background(), "/sleep/1s") }()
		for inFlight(h) == 0 {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("ready")
		<-interrupted
		if err := h.Close(); err != nil {
			return failed(err)
		}
		if err := <-called; err != nil {
			return failed(err)
		}
		fmt.Println(callDone)
		return 0
	}
	select {}
}

func inFlight(h *host.Host) (calls int) {
	for _, st := range h.Providers() {
		calls += st.InFlight
	}
	return calls
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// hostSignals are those that end a host which does nothing about them.
func hostSignals() map[string]syscall.Signal {
	return map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGTERM": syscall.SIGTERM, "SIGQUIT": syscall.SIGQUIT}
}
