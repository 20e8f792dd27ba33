// Command berth-demo shows the main job of Berth on real plugin processes: work
// in a workspace, lose the plugin in the middle of a command, go on, and come
// back from another process. It leaves nothing behind.
//
// Run it with `make demo`; it looks for the plugins beside its own binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run := first
	if len(os.Args) == 4 && os.Args[1] == "attach" {
		run = func(ctx context.Context) error { return second(ctx, os.Args[2], os.Args[3]) }
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// open makes a host of the two providers that need no engine, with all that
// they keep under dir.
func open(dir string) (*host.Host, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return host.New(host.Config{
		PluginDirs: []string{filepath.Dir(exe)},
		DataDir:    dir,
		Providers:  map[string]host.Provider{"state": {}, "local": {}},
	})
}

func first(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "berth-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h, err := open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()

	notes, err := files(ctx, h)
	if err != nil {
		return err
	}
	work, err := commands(ctx, h)
	if err != nil {
		return err
	}
	if err := crash(ctx, h, work); err != nil {
		return err
	}
	ref, _ := work.Ref()

	title("A second host process attaches by ref")
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	other := exec.CommandContext(ctx, exe, "attach", dir, ref.String())
	other.Stdout, other.Stderr = os.Stdout, os.Stderr
	if err := other.Run(); err != nil {
		return fmt.Errorf("second host: %w", err)
	}

	title("Both are destroyed")
	for _, r := range []workspace.Ref{notes, ref} {
		if err := h.Destroy(ctx, r); err != nil {
			return err
		}
		say("destroyed %s", r)
	}
	switch _, err := work.Stat(ctx, "."); {
	case err == nil:
		return errors.New("a destroyed workspace still answers")
	case !errors.Is(err, workspace.ErrUnavailable):
		return err
	}
	say("and it is gone: errors.Is(err, workspace.ErrUnavailable)")
	return nil
}

// files works in a workspace that only holds files.
func files(ctx context.Context, h *host.Host) (workspace.Ref, error) {
	title("Files in a workspace of the state provider")
	ws, err := h.Workspace("state")
	if err != nil {
		return workspace.Ref{}, err
	}
	for path, text := range map[string]string{"plan.md": "1. dock\n2. unload\n", "logs/monday.txt": "all quiet\n"} {
		if err := ws.WriteFile(ctx, path, []byte(text)); err != nil {
			return workspace.Ref{}, err
		}
		say("wrote %s", path)
	}
	entries, err := ws.ReadDir(ctx, ".")
	if err != nil {
		return workspace.Ref{}, err
	}
	for _, e := range entries {
		say("listed %v %4d %s", e.Mode, e.Size, e.Name)
	}
	data, err := ws.ReadFile(ctx, "plan.md")
	if err != nil {
		return workspace.Ref{}, err
	}
	say("read plan.md: %q", data)
	ref, _ := ws.Ref()
	say("its ref: %s (plugin pid %d)", ref, pid(h, "state"))
	return ref, nil
}

// commands runs one whose output streams.
func commands(ctx context.Context, h *host.Host) (workspace.Workspace, error) {
	title("A command in a workspace of the local provider, streaming")
	ws, err := h.Workspace("local")
	if err != nil {
		return nil, err
	}
	p, err := ws.Start(ctx, workspace.Command{
		Script: `for i in 1 2 3; do echo "crate $i"; sleep 0.2; done; echo done > state.txt; exit 3`,
		Stdout: indent{}, Stderr: indent{},
	})
	if err != nil {
		return nil, err
	}
	result, err := p.Wait()
	if err != nil {
		return nil, err
	}
	ref, _ := ws.Ref()
	say("exit code %d, in %s (plugin pid %d)", result.ExitCode, ref, pid(h, "local"))
	return ws, nil
}

// crash kills the plugin under a command, and goes on.
func crash(ctx context.Context, h *host.Host, ws workspace.Workspace) error {
	title("The plugin is killed while a command runs")
	victim := pid(h, "local")
	started := make(signalWriter, 1)
	p, err := ws.Start(ctx, workspace.Command{Script: "echo started; sleep 60", Stdout: started})
	if err != nil {
		return err
	}
	select {
	case <-started:
	case <-ctx.Done():
		return ctx.Err()
	}
	plugin, err := os.FindProcess(victim)
	if err != nil {
		return err
	}
	if err := plugin.Kill(); err != nil { // SIGKILL
		return fmt.Errorf("kill plugin %d: %w", victim, err)
	}
	_, err = p.Wait()
	var failed *workspace.PluginError
	if !errors.As(err, &failed) {
		return fmt.Errorf("the killed plugin's command ended with %w, want a *workspace.PluginError", err)
	}
	say("*workspace.PluginError: %v", failed)

	title("The same workspace, on the restarted plugin")
	result, err := ws.Run(ctx, workspace.Command{Args: []string{"cat", "state.txt"}})
	if err != nil {
		return err
	}
	say("state.txt still says %q (plugin pid %d)", strings.TrimSpace(result.StdoutText()), pid(h, "local"))
	return nil
}

// second is the other host process.
func second(ctx context.Context, dir, text string) (err error) {
	ref, err := workspace.ParseRef(text)
	if err != nil {
		return err
	}
	h, err := open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	ws, err := h.Attach(ref)
	if err != nil {
		return err
	}
	data, err := ws.ReadFile(ctx, "state.txt")
	if err != nil {
		return err
	}
	say("host %d read state.txt of %s: %q (plugin pid %d)", os.Getpid(), ref, data, pid(h, "local"))
	return nil
}

func pid(h *host.Host, provider string) int {
	for _, p := range h.Providers() {
		if p.Name == provider {
			return p.PID
		}
	}
	return 0
}

func title(text string)           { fmt.Printf("\n== %s\n", text) }
func say(format string, a ...any) { fmt.Printf("   "+format+"\n", a...) }

// indent shows a command's output as it arrives.
type indent struct{}

func (indent) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		fmt.Printf("   | %s", line)
	}
	return len(p), nil
}

// signalWriter tells once that something was written.
type signalWriter chan struct{}

func (w signalWriter) Write(p []byte) (int, error) {
	select {
	case w <- struct{}{}:
	default:
	}
	return len(p), nil
}
