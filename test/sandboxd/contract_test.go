//go:build sandboxd

package sandboxd_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/conformance"
	"github.com/berth-dev/berth/plugins/sandboxd"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/sandboxd/sandboxdtest"
)

// configuredEnv overrides a variable that every container has.
var configuredEnv = map[string]string{"HOME": "/configured", "BERTHED": "yes"}

// largeFile is enough to be read and written in many pages.
const largeFile = 20 << 20

// options are the suite's hooks for a bed.
func (b *bed) options(t *testing.T) conformance.Options {
	b.config["env"] = configuredEnv
	b.host = b.newHost(t, nil)
	return conformance.Options{
		Host: b.host, Provider: provider, Env: configuredEnv, LargeFile: largeFile,
		Deviations: sandboxd.Deviations(),
		OtherHost:  func(t testing.TB) workspace.Host { return b.newHost(t, nil) },
		Started:    func(h workspace.Host) bool { return h.(*host.Host).Providers()[0].State != "stopped" },
		Restart:    func(t testing.TB) { killPlugin(t, b.host) },
		Reconfigured: func(t testing.TB) workspace.Host {
			return b.newHost(t, map[string]any{"runtime": "busybox"})
		},
		Configured: func(t testing.TB) conformance.Configured {
			return conformance.Configured{Host: b.newHost(t, map[string]any{"session_name": "The.one_session"}), Provider: provider, Name: "The.one_session"}
		},
		Elsewhere: func(t testing.TB) (string, workspace.Ref) {
			const name = "somebody-elses"
			if status, body := b.service.Call(t, http.MethodPost, "/sessions", map[string]any{"session_id": name, "reuse": true}); status != http.StatusOK {
				t.Fatalf("open a session: %d %s", status, body)
			}
			if b.keeps { // then not even the tenant tells whose it was
				b.stop(t, workspace.Ref{ID: name})
			}
			return name, workspace.Ref{Provider: provider, ID: name}
		},
		FailCreates: func(t testing.TB) func() {
			limit := func(n int) {
				if status, body := b.service.Call(t, http.MethodPut, "/policy", map[string]any{"max_sessions_per_tenant": n}); status != http.StatusOK {
					t.Fatalf("change the policy: %d %s", status, body)
				}
			}
			limit(1) // the suite's own workspace is one
			return func() { limit(500) }
		},
		SlowCreates: func(t testing.TB, d time.Duration) {
			b.front.slow(d, 0)
			t.Cleanup(func() { b.front.slow(0, 0) })
		},
	}
}

// stop closes a session as its service does for idleness.
func (b *bed) stop(t testing.TB, ref workspace.Ref) {
	t.Helper()
	if status, body := b.service.Call(t, http.MethodDelete, "/sessions/"+ref.ID, nil); status != http.StatusNoContent {
		t.Fatalf("close session %s: %d %s", ref.ID, status, body)
	}
}

// replace puts another session under the same id.
func (b *bed) replace(t testing.TB, ref workspace.Ref) {
	t.Helper()
	if status, body := b.service.Call(t, http.MethodDelete, "/sessions/"+ref.ID+"?purge=true", nil); status != http.StatusNoContent {
		t.Fatalf("purge session %s: %d %s", ref.ID, status, body)
	}
	if status, body := b.service.Call(t, http.MethodPost, "/sessions", map[string]any{"session_id": ref.ID, "tenant": "berth-" + provider}); status != http.StatusOK {
		t.Fatalf("open session %s: %d %s", ref.ID, status, body)
	}
}

// TestContract is the whole suite where the service keeps files on its own disk and
// does with them by itself what it can.
func TestContract(t *testing.T) {
	b := newBed(t, nil, nil)
	b.keeps = true
	options := b.options(t)
	options.Stop, options.Replace = b.stop, b.replace
	// The suite's probe is not in the image, and has to be written first.
	check(t, conformance.Test(t, options), []string{"C5_CreatingDoesNotCount"}, append(unshown(),
		"L3_StoppedIsStarted", // this service keeps the files
	))
}

// TestContractWithoutNativeFiles is the suite on a service that has nothing but
// commands and containers, as older ones have, and with BusyBox's tools. Its sessions
// end when they are closed.
func TestContractWithoutNativeFiles(t *testing.T) {
	b := newBed(t, sandboxdtest.Settings{"workspace_root": nil, "native_files": false, "default_runtime": "busybox"}, nil)
	options := b.options(t)
	options.Replace = b.replace
	options.Reconfigured = func(t testing.TB) workspace.Host {
		return b.newHost(t, map[string]any{"runtime": "debian"})
	}
	check(t, conformance.Test(t, options), []string{"C5_CreatingDoesNotCount", "L3_StoppedIsStarted"}, append(unshown(),
		// The session is open, and its tenant tells whose it is.
		"L4_ForeignNameIsInvalid", "L6_ForeignRefIsInvalid",
	))
}

// check wants of a report that nothing was left out but what cannot be done here, and
// that each declared deviation is one, but those that are kept here sometimes.
func check(t *testing.T, report *conformance.Report, leftOut, sometimes []string) {
	t.Helper()
	for _, line := range report.Lines {
		if strings.HasPrefix(line.Reason, "needs Options.") && !slices.Contains(leftOut, line.Check) {
			t.Errorf("not checked: %s: %s", line.Check, line.Reason)
		}
	}
	for _, rule := range keptDeviations(report, sandboxd.Deviations()) {
		if !slices.Contains(sometimes, rule) {
			t.Errorf("%s is declared as a deviation, and kept", rule)
		}
	}
}

// keptDeviations are the declared rules of which every check passed.
func keptDeviations(report *conformance.Report, declared []sdk.Deviation) (kept []string) {
	for _, d := range declared {
		passed, failed := 0, 0
		for _, line := range report.Lines {
			switch {
			case line.Status != conformance.Deviates || d.Rule != line.Check && d.Rule != line.Rule():
			case strings.HasSuffix(line.Reason, "(but this check passed)"):
				passed++
			default:
				failed++
			}
		}
		if passed > 0 && failed == 0 {
			kept = append(kept, d.Rule)
		}
	}
	return kept
}

// unshown are the deviations that no check of the suite meets: it attaches to sessions
// that are open, and replaces them with their files.
func unshown() []string { return []string{"L3_AttachNeedsNoConfiguration", "L8"} }

// TestDeviationsThatTheSuiteDoesNotShow: what is declared beyond the suite's checks is
// so. If it is not any more, it is to be declared no longer.
func TestDeviationsThatTheSuiteDoesNotShow(t *testing.T) {
	b := newBed(t, nil, nil)
	const image = "if [ -e /etc/debian_version ]; then echo debian; else echo busybox; fi"
	t.Run("L3_AttachNeedsNoConfiguration", func(t *testing.T) {
		ws, ref := b.open(t)
		if was := script(t, ws, image); was != "debian\n" {
			t.Fatalf("the session runs %q", was)
		}
		b.stop(t, ref)
		again, err := b.newHost(t, map[string]any{"runtime": "busybox"}).Attach(ref)
		if err != nil {
			t.Fatal(err)
		}
		if is := script(t, again, image); is != "busybox\n" {
			t.Errorf("a session that was closed comes back on its own runtime: it runs %q", is)
		}
	})
	t.Run("L8", func(t *testing.T) {
		ws, ref := b.open(t)
		script(t, ws, "echo >/installed")
		b.stop(t, ref)
		b.service.RemoveContainers(t)
		if is := script(t, ws, "ls /installed 2>/dev/null || echo gone"); is != "gone\n" {
			t.Errorf("what was installed in a container that was removed is %q", is)
		}
	})
}
