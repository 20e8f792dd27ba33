package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func environmentChecks() []check {
	return []check{
		{name: "C9_CallsOwnEnvIsExact", needs: commands, run: checkCallEnv},
		{name: "C9_CallComesAfterProviderAfterWorkspace", needs: commands, hooks: hooks(needEnv), run: checkEnvOrder},
		{name: "C9_ValuesAreNotKept", needs: commands, run: checkEnvNotKept},
		{name: "C9_NothingOfTheHostLeaks", needs: commands, run: checkHostEnv},
		{name: "C9_NoSignalSetOrDescriptorLeaks", needs: commands, run: checkProcessState},
	}
}

// environment returns the variables that a command sees.
func (e *env) environment(t testing.TB, vars map[string]string) map[string]string {
	t.Helper()
	cmd := e.cmd(t, "env")
	cmd.Env = vars
	env := map[string]string{}
	for _, kv := range hexLines(t, e.success(t, cmd).Stdout) {
		name, value, _ := strings.Cut(kv, "=")
		if _, twice := env[name]; twice {
			t.Errorf("the command sees %q twice", name)
		}
		env[name] = value
	}
	return env
}

func checkCallEnv(t testing.TB, e *env) {
	vars := map[string]string{}
	for i, value := range oddStrings() {
		vars["CONFORMANCE_"+strings.Repeat("X", i+1)] = value
	}
	for _, name := range []string{"conformance.dots", "conformance-dash", "CONFORMANCE SPACE", "CONFORMANCE_é", "CONFORMANCE_\xff", "CONFORMANCE\nLINE"} {
		vars[name] = "value of " + name
	}
	env := e.environment(t, vars)
	for name, want := range vars {
		if got, ok := env[name]; !ok || got != want {
			t.Errorf("%q is %q (set: %v), want %q", name, got, ok, want)
		}
	}
}

func checkEnvOrder(t testing.TB, e *env) {
	env, again := e.environment(t, nil), e.environment(t, nil)
	for name, want := range e.opts.Env {
		if got, ok := env[name]; !ok || got != want {
			t.Errorf("%q is %q (set: %v), want %q as the provider is configured", name, got, ok, want)
		}
		over := e.environment(t, map[string]string{name: "the call's own"})
		if over[name] != "the call's own" {
			t.Errorf("%q is %q, want the call's own", name, over[name])
		}
		for other, value := range env {
			// What each command has of its own, such as a mark by which a provider finds
			// it, is another one without the call's doing too.
			if other != name && again[other] == value && over[other] != value {
				t.Errorf("a call gave %q, and %q became %q, before it was %q", name, other, over[other], value)
			}
		}
	}
}

func checkEnvNotKept(t testing.TB, e *env) {
	if got := e.environment(t, map[string]string{"CONFORMANCE_ONCE": "x"}); got["CONFORMANCE_ONCE"] != "x" {
		t.Errorf("CONFORMANCE_ONCE is %q, want x", got["CONFORMANCE_ONCE"])
	}
	if got, ok := e.environment(t, nil)["CONFORMANCE_ONCE"]; ok {
		t.Errorf("the next command sees CONFORMANCE_ONCE=%q of the one before", got)
	}
}

// checkHostEnv looks for what this process has and a workspace cannot have by
// itself. A value that both have, such as PATH's, may be chance.
func checkHostEnv(t testing.TB, e *env) {
	env := e.environment(t, nil)
	for _, name := range []string{"BERTH_PLUGIN", "BERTH_LIFELINE_FD", "GOMAXPROCS", "GOCOVERDIR", "GOTRACEBACK"} {
		if _, ok := e.opts.Env[name]; ok {
			continue
		}
		if value, ok := env[name]; ok {
			t.Errorf("the command sees the plugin's own %s=%q", name, value)
		}
	}
	for name := range env {
		if _, ok := e.opts.Env[name]; !ok && (strings.HasPrefix(name, "PLUGIN_") || strings.HasPrefix(name, "BERTH_")) {
			t.Errorf("the command sees the plugin's own %s", name)
		}
	}
	leak := "CONFORMANCE_HOST_" + hexOf([]byte(newName()))
	//nolint:usetesting // t.Setenv is not for parallel tests; the name is this run's alone
	if err := os.Setenv(leak, "x"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Unsetenv(leak) })
	if value, ok := e.environment(t, nil)[leak]; ok {
		t.Errorf("the command sees %s=%q, which is set in the host's process", leak, value)
	}
}

// signalScript says which signals a shell was started with blocked or ignored:
// the probe's own runtime has caught most of them before it can look. BusyBox's
// shell ignores QUIT by itself.
const signalScript = `own=
case $(readlink /proc/$$/exe) in *busybox*) own=SigIgn:0000000000000004;; esac
while read -r name value; do
	[ "$name$value" != "$own" ] || continue
	case $name in SigBlk:|SigIgn:) case $value in *[!0]*) echo "$name $value";; esac;; esac
done </proc/self/status`

func checkProcessState(t testing.TB, e *env) {
	if leaked := e.output(t, "state"); leaked != "" {
		t.Errorf("the command inherited:\n%s", leaked)
	}
	if e.features.Has(workspace.FeatureShell) && e.opts.GOOS == "linux" {
		if res := e.success(t, workspace.Command{Script: signalScript}); len(res.Stdout) != 0 {
			t.Errorf("the shell inherited:\n%s", res.Stdout)
		}
	}
}
