package posix_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// runInNamespaces runs a role as the first process of a namespace, with mounts of
// its own, and as whoever root is there.
func runInNamespaces(t *testing.T, role string) {
	t.Helper()
	var out bytes.Buffer
	cmd := roleCommand("/proc/self/exe", role, t.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	if err := cmd.Start(); err != nil {
		t.Skipf("this user may make no namespaces: %v", err)
	}
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(out.String(), "fine\n") {
		t.Errorf("role %s: %v: %s", role, err, &out)
	}
}

// mountProc puts a file system in the place of /proc, for this process's namespace.
func mountProc(kind string) error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("none", "/proc", kind, unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", kind, err)
	}
	return nil
}

// TestCommandThatKillsAllProcesses is of one that leaves of this package's
// processes only the one that runs commands, as the first of a container.
func TestCommandThatKillsAllProcesses(t *testing.T) { runInNamespaces(t, roleKillAll) }

func killAll(dir string) error {
	if err := mountProc("proc"); err != nil {
		return err
	}
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "role", Env: testEnv, WholeMachine: true})
	if err != nil {
		return err
	}
	defer ws.Close()
	begun := time.Now()
	for range 3 {
		var all []sdk.Process
		for _, text := range []string{"echo; exec sleep 987", "(setsid sleep 987 &); echo; exec sleep 987", "kill -9 -1; exec sleep 987"} {
			p, err := ws.Start(context.Background(), script(text))
			if strings.HasPrefix(text, "kill") {
				if err == nil {
					all = append(all, p)
				} else if errors.Is(err, workspace.ErrTransient) || errors.Is(err, workspace.ErrUnavailable) {
					return fmt.Errorf("it ran before its supervisor could tell: %w", err)
				}
				continue
			}
			if err != nil {
				return fmt.Errorf("starting %s: %w", text, err)
			}
			if _, err := p.Stdout().Read(make([]byte, 1)); err != nil {
				return fmt.Errorf("waiting for %s: %w", text, err)
			}
			all = append(all, p)
		}
		for i, p := range all {
			if code, err := p.Wait(); err == nil {
				return fmt.Errorf("command %d: exit code %d, want an error: how it ended is unknown", i, code)
			}
			if survivors := p.Stop(0); !strings.HasPrefix(survivors, "unknown: ") {
				return fmt.Errorf("command %d: survivors %q, want unknown: who would know was killed", i, survivors)
			}
			if err := p.Close(); err != nil {
				return err
			}
		}
		if err := small(ws); err != nil {
			return fmt.Errorf("afterwards: %w", err)
		}
	}
	if took := time.Since(begun); took > soon {
		return fmt.Errorf("took %v", took)
	}
	fmt.Println("fine")
	return nil
}

// TestWithoutProc is of a machine without /proc: it has files, and says why it has
// no commands.
func TestWithoutProc(t *testing.T) { runInNamespaces(t, roleNoProc) }

func withoutProc(dir string) error {
	if err := mountProc("tmpfs"); err != nil {
		return err
	}
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "role", Env: testEnv, WholeMachine: true})
	if err != nil {
		return err
	}
	defer ws.Close()
	_, err = ws.Start(context.Background(), script("exit 0"))
	if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, workspace.ErrUnavailable) || !strings.Contains(err.Error(), "commands need /proc") {
		return fmt.Errorf("a command: %w, want ErrUnsupported that says what is missing", err)
	}
	modTime := time.Unix(1234567890, 123456789)
	for _, content := range []string{"first", "second"} {
		w, err := ws.Create(context.Background(), "file", workspace.WriteOptions{ModTime: modTime})
		if err != nil {
			return fmt.Errorf("creating a file: %w", err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return fmt.Errorf("closing a file: %w", err)
		}
		got, err := os.ReadFile(dir + "/file")
		info, statErr := os.Stat(dir + "/file")
		if err := errors.Join(err, statErr); err != nil || string(got) != content || !info.ModTime().Equal(modTime) {
			return fmt.Errorf("the file holds %q of %v: %w", got, info.ModTime(), err)
		}
	}
	fmt.Println("fine")
	return nil
}
