package budget

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/wire"
)

const mib = 1 << 20

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		limits Limits
		key    string
	}{
		{Limits{}, ""},
		{Limits{Memory: 256 * mib, MemorySoft: 200 * mib, CPU: 0.5}, ""},
		{Limits{Memory: MinMemory, MemorySoft: MinMemory, CPU: MinCPU}, ""},
		{Limits{MemorySoft: 200 * mib, CPU: 4}, ""},
		{Limits{Memory: 256}, "memory"},
		{Limits{Memory: -mib}, "memory"},
		{Limits{MemorySoft: 200}, "memory_soft"},
		{Limits{Memory: 256 * mib, MemorySoft: 257 * mib}, "memory_soft"},
		{Limits{CPU: -1}, "cpu"},
		{Limits{CPU: 0.001}, "cpu"},
		{Limits{CPU: math.NaN()}, "cpu"},
		{Limits{CPU: math.Inf(1)}, "cpu"},
	} {
		if key, reason := test.limits.Validate(); key != test.key || (key == "") != (reason == "") {
			t.Errorf("%+v: %q, %q", test.limits, key, reason)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1024": 1024, "7B": 7, "64KiB": 64 << 10, "256MiB": 256 << 20, "2GiB": 2 << 30, "8388607TiB": 8388607 << 40,
		"": -1, "MiB": -1, "-1MiB": -1, "+1MiB": -1, "1.5GiB": -1, "256MB": -1, "256M": -1, "256 MiB": -1, "8388608TiB": -1, "9999999999999999999": -1, "1iB": -1, "1KiBKiB": -1,
	} {
		got, err := ParseSize(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestSizesForPeople(t *testing.T) {
	for n, want := range map[int64]string{256 * mib: "256 MiB", 1 << 30: "1 GiB", 1536 * mib: "1536 MiB", 20<<20 + 1: "20971521 bytes", 3 << 10: "3 KiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for n, want := range map[int64]string{256*mib + 1: "257 MiB", 256 * mib: "256 MiB", 1: "1 MiB"} {
		if got := About(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

// A plugin is told what it has to know, and what the operator has set stays.
func TestEnv(t *testing.T) {
	told := func(env []string) wire.Budget {
		t.Helper()
		for _, kv := range env {
			if text, ok := strings.CutPrefix(kv, wire.BudgetEnv+"="); ok {
				b, err := wire.ParseBudget(text)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
		}
		t.Fatalf("%q tells nothing", env)
		return wire.Budget{}
	}
	var none *Room
	if env := none.Env([]string{"A=b"}); len(env) != 1 || none.String() != "" {
		t.Errorf("without a budget: %q, %s", env, none)
	}
	if Open(Limits{}, "x") != nil {
		t.Error("there is a room without limits")
	}
	watched := &Room{limits: Limits{Memory: 100 * mib, CPU: 1}.WithDefaults()}
	env := watched.Env([]string{"A=b"})
	if !slices.Contains(env, "GOMEMLIMIT=83886080") || !slices.Contains(env, "A=b") {
		t.Errorf("%q", env)
	}
	if b := told(env); !b.GoMemoryLimit || b.Nice != niceness || len(b.CommandGroups) != 0 {
		t.Errorf("%+v", b)
	}
	env = watched.Env([]string{"GOMEMLIMIT=1GiB"})
	if told(env).GoMemoryLimit || !slices.Contains(env, "GOMEMLIMIT=1GiB") || len(env) != 2 {
		t.Errorf("%q", env)
	}
	bounded := &Room{limits: Limits{CPU: 1}, cpu: true, groups: []*group{{own: "/sys/fs/cgroup/own"}}}
	env = bounded.Env(nil)
	if b := told(env); len(env) != 1 || b.Nice != 0 || b.GoMemoryLimit || !slices.Equal(b.CommandGroups, []string{"/sys/fs/cgroup/own"}) {
		t.Errorf("%q", env)
	}
}
