package faults_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// patience is for what takes milliseconds, on a machine with no time to spare.
	patience = 60 * time.Second
	// tries is how often a time is taken that a busy machine may spoil: the fault in
	// question would spoil it each time.
	tries = 8
	// stopAtEnd is what calls get that a test left.
	stopAtEnd = time.Second
)

// poll waits for something to become true.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// promptly fails if what measure tells is over the limit in each of several tries.
func promptly(t *testing.T, limit time.Duration, what string, measure func() time.Duration) {
	t.Helper()
	var best time.Duration
	for try := range tries {
		took := measure()
		if t.Failed() || took <= limit {
			return
		}
		if try == 0 || took < best {
			best = took
		}
	}
	t.Errorf("%s took %v at the best of %d tries, want %v", what, best, tries, limit)
}

// alive reports whether a process is there that is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// groupIsEmpty reports whether a process group has no member.
func groupIsEmpty(pgid int) bool { return errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) }

func atoi(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// status is that of one provider.
func status(t testing.TB, h *host.Host, provider string) host.ProviderStatus {
	t.Helper()
	for _, st := range h.Providers() {
		if st.Name == provider {
			return st
		}
	}
	t.Fatalf("no provider %s", provider)
	return host.ProviderStatus{}
}

func asPluginError(t testing.TB, err error) *workspace.PluginError {
	t.Helper()
	var plug *workspace.PluginError
	if !errors.As(err, &plug) {
		t.Fatalf("%T: %v", err, err)
	}
	return plug
}
