package process

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/faults"
)

// foreignProgram is the header of a program for a machine that this is not.
func foreignProgram() string {
	header := elf.Header64{
		Ident:   [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_EXEC),
		Machine: uint16(elf.EM_SPARCV9),
		Version: uint32(elf.EV_CURRENT),
		Ehsize:  64, Phentsize: 56, Shentsize: 64,
	}
	var b strings.Builder
	if err := binary.Write(&b, binary.LittleEndian, header); err != nil {
		panic(err)
	}
	return b.String()
}

func TestStartFailures(t *testing.T) {
	const short = 700 * time.Millisecond
	tests := []struct {
		name    string
		path    string
		timeout time.Duration
		reason  string // in it
		status  string // exact
		stderr  string // in its last lines
		cause   error
	}{
		{name: "missing", path: "/nowhere/berth-provider-bad", reason: "/nowhere/berth-provider-bad does not exist", cause: fs.ErrNotExist},
		{name: "not executable", path: file(t, "#!/bin/sh\n", 0o644), reason: "is not executable by this user (mode 0644", cause: fs.ErrPermission},
		{name: "other machine", path: file(t, foreignProgram(), 0o755), reason: "it was built for sparcv9", cause: syscall.ENOEXEC},
		{name: "text", path: file(t, "once upon a time", 0o755), reason: "is not a program for linux/", cause: syscall.ENOEXEC},
		{name: "no interpreter", path: file(t, "#!/nowhere/python9\n", 0o755), reason: "interpreter or dynamic loader", cause: fs.ErrNotExist},
		{name: "another program", path: file(t, "#!/bin/sh\necho usage: tool FILE\n", 0o755), reason: `wrote "usage: tool FILE" to stdout before the handshake`},
		{name: faults.Exit0, reason: "ended at once without a handshake: it is no Berth plugin", status: "exit status 0"},
		{name: faults.Exit7, reason: "ended before its handshake", status: "exit status 7", stderr: "cannot find the flux capacitor"},
		{name: faults.PanicInit, reason: "crashed before its handshake: panic: no luck at init", status: "exit status 2", stderr: "panic: no luck at init"},
		{name: faults.LateExit, reason: "ended before its handshake", status: "exit status 9"},
		{name: faults.Garbage, reason: "to stdout before the handshake"},
		{name: faults.PrintFirst, reason: `wrote "hello from a library" to stdout before the handshake`},
		{name: faults.OtherVersion, reason: "berth-provider-other-version speaks protocol version 99, this host 1"},
		{name: faults.CloseStdout, reason: "closed its stdout without a handshake"},
		{name: faults.NoServer, reason: "does not serve gRPC on the socket of its handshake"},
		{name: faults.FrozenStart, timeout: short, reason: "it waited for an answer on the plugin's socket", cause: context.DeadlineExceeded},
		{name: faults.Silent, timeout: short, reason: "was not ready within 700ms; it waited for the handshake line on the plugin's stdout", cause: context.DeadlineExceeded},
		{name: faults.Elsewhere, reason: "not on a socket in the folder that it was given"},
	}
	seen := make(map[string]string)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := testConfig(t, test.name)
			if test.path != "" {
				cfg.Path = test.path
			}
			if test.timeout != 0 {
				cfg.StartTimeout = test.timeout
			}
			p, err := Start(t.Context(), cfg)
			if err == nil {
				p.Close()
				t.Fatal("started")
			}
			var plug *workspace.PluginError
			if !errors.As(err, &plug) {
				t.Fatalf("%T: %v", err, err)
			}
			if plug.Provider != "test" || plug.Op != "start" || plug.MayHaveExecuted {
				t.Errorf("%+v", plug)
			}
			if !strings.Contains(plug.Reason, test.reason) || !strings.Contains(plug.Reason, cfg.Path) {
				t.Errorf("reason %q, want %q and the path in it", plug.Reason, test.reason)
			}
			if test.status != "" && plug.ExitStatus != test.status {
				t.Errorf("exit status %q, want %q", plug.ExitStatus, test.status)
			}
			if !strings.Contains(strings.Join(plug.Stderr, "\n"), test.stderr) {
				t.Errorf("last lines %q, want %q", plug.Stderr, test.stderr)
			}
			if test.cause != nil && !errors.Is(err, test.cause) {
				t.Errorf("%v is not %v", err, test.cause)
			}
			if left := faults.Running(t, cfg.Path); len(left) > 0 {
				t.Errorf("left running: %v", left)
			}
			for name, other := range seen {
				if strings.ReplaceAll(other, cfg.Path, "") == strings.ReplaceAll(plug.Reason, cfg.Path, "") && test.timeout == 0 && test.status == "" {
					t.Errorf("the same reason as %s", name)
				}
			}
			seen[test.name] = plug.Reason
		})
	}
}

func TestStartCanBeCancelled(t *testing.T) {
	for _, name := range []string{faults.Silent, faults.FrozenStart, faults.Slow} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, name)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := Start(ctx, cfg)
				failed <- err
			}()
			poll(t, "the process", func() bool { return len(faults.Running(t, cfg.Path)) > 0 })
			began := time.Now()
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waited for") {
				t.Errorf("error: %v", err)
			}
			if took := time.Since(began); took > soon { // 200 ms on an idle machine
				t.Errorf("took %v", took)
			}
			if left := faults.Running(t, cfg.Path); len(left) > 0 {
				t.Errorf("left running: %v", left)
			}
		})
	}
}

func TestStartRefusesAMissingWorkingDirectory(t *testing.T) {
	cfg := testConfig(t, faults.Good)
	cfg.Dir = filepath.Join(cfg.Dir, "none")
	if _, err := Start(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), cfg.Dir) {
		t.Errorf("error: %v", err)
	}
}

// A file that is open for writing cannot be executed; the copy that writes it
// is about to end.
func TestStartWaitsForABusyFile(t *testing.T) {
	content, err := os.ReadFile(plugins.Path(faults.Good))
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, faults.Good)
	cfg.Path = file(t, string(content), 0o755)
	writer, err := os.OpenFile(cfg.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { writer.Close() })
	p := start(t, cfg)
	if got := mustDo(t, p, "ping"); got != "pong" {
		t.Errorf("ping: %q", got)
	}
}
