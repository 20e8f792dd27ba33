package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A service manager that asks is told, at an abstract address too; one that cannot be
// told keeps nobody from being served.
func TestTheServiceManagerIsTold(t *testing.T) {
	for _, address := range []string{filepath.Join(t.TempDir(), "s"), "@berth-test-" + filepath.Base(t.TempDir()) + time.Now().Format(time.RFC3339Nano)} {
		manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: address})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		t.Setenv("NOTIFY_SOCKET", address)
		a, _, stderr := newTestApp(t, nil)
		a.notifyManager(t.Context(), managerReady)
		if err := manager.SetReadDeadline(time.Now().Add(scriptTimeout)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		if n, err := manager.Read(buf); err != nil || string(buf[:n]) != "READY=1" {
			t.Errorf("%s: told %q, %v", address, buf[:n], err)
		}
		if got := read(t, stderr); got != "" {
			t.Errorf("on stderr: %s", got)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	a, _, stderr := newTestApp(t, nil)
	a.notifyManager(t.Context(), managerReady)
	if got := read(t, stderr); !strings.HasPrefix(got, "berth: warning: telling the service manager READY=1: ") {
		t.Errorf("on stderr: %s", got)
	}
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		t.Fatal(err)
	}
	a.notifyManager(t.Context(), managerReady)
}
