// Package budget bounds what a plugin's own process may use of the machine, not
// what the commands do that it runs for others. [Open] makes a [Room] for one
// process: control groups where this process may make them, and what the plugin
// is told where it may not. [Used] reads what a process uses, for whoever watches
// it in any case.
//
// There are no resource limits (setrlimit) in it: one of the address space stops a
// Go program that uses little of what it has reserved, one of processor time counts
// a whole life.
package budget

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/shared/wire"
)

// Limits bound one plugin process. Zero fields are no bound.
type Limits struct {
	// Memory is how much the process may use, in bytes, MemorySoft from where on it
	// is worth a word.
	Memory, MemorySoft int64
	// CPU is how many processors it may keep busy, on average.
	CPU float64
}

const (
	// MinMemory is less than any plugin that serves uses: who asks for less has
	// left out the unit.
	MinMemory = 16 << 20
	// MinCPU is the least that the kernel takes: 1 ms in each period of 100 ms.
	MinCPU = 0.01
	// MaxCPU is more than any machine has.
	MaxCPU = 1 << 14
	// softPart of the memory is where the soft bound is, if none is given: far enough
	// below for a warning to come before the end.
	softPart = 0.8
	// niceness is what a plugin takes where its processor time cannot be bounded:
	// then it takes a tenth of what its neighbours get, when there is not enough.
	niceness = 10
)

// WithDefaults fills in what follows from the rest.
func (l Limits) WithDefaults() Limits {
	if l.MemorySoft == 0 {
		l.MemorySoft = int64(softPart * float64(l.Memory))
	}
	return l
}

// Validate tells what is wrong, as a key and a reason. Both are empty if nothing
// is.
func (l Limits) Validate() (key, reason string) {
	const least = MinMemory >> 20
	switch {
	case l.Memory < 0 || l.Memory != 0 && l.Memory < MinMemory:
		return "memory", fmt.Sprintf("%d bytes: want at least %d MiB, such as 256MiB", l.Memory, least)
	case l.MemorySoft < 0 || l.MemorySoft != 0 && l.MemorySoft < MinMemory:
		return "memory_soft", fmt.Sprintf("%d bytes: want at least %d MiB, such as 200MiB", l.MemorySoft, least)
	case l.Memory != 0 && l.MemorySoft > l.Memory:
		return "memory_soft", fmt.Sprintf("is more than memory, %s: want less", Size(l.Memory))
	case math.IsNaN(l.CPU) || l.CPU < 0 || l.CPU != 0 && l.CPU < MinCPU || l.CPU > MaxCPU:
		return "cpu", fmt.Sprintf("want a number of processors from %v on, such as 0.5", MinCPU)
	}
	return "", ""
}

// Size is a number of bytes for people.
func Size(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (10 * (3 - i)); n >= one && n%one == 0 {
			return fmt.Sprintf("%d %s", n/one, unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// About is the same in full MiB, upwards.
func About(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

// ParseSize reads a number of bytes with its unit, such as 256MiB.
func ParseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	unit, ok := map[string]int{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 || digits[0] == '+' || n > math.MaxInt64>>unit {
		return 0, errors.New("want a size, such as 256MiB or 1GiB")
	}
	return n << unit, nil
}

// Room is where one plugin process runs. A nil one has no limits.
type Room struct {
	limits Limits
	groups []*group // one for each hierarchy; none where there may be none
	memory bool     // a group bounds it
	cpu    bool
	why    error // why no group does what it was asked to
}

// Open makes room for one process of a provider. Where no group can be made, it
// does what is possible without, and [Room.String] says why: a budget keeps no
// plugin from being started.
func Open(limits Limits, provider string) *Room {
	limits = limits.WithDefaults()
	if limits == (Limits{}) {
		return nil
	}
	r := &Room{limits: limits}
	r.enclose(provider)
	return r
}

// Limits are those that it was made with, and their defaults.
func (r *Room) Limits() Limits {
	if r == nil {
		return Limits{}
	}
	return r.limits
}

// goMemoryLimit is what the runtime of Go reads: from there on it collects garbage
// harder. It is a soft bound, within a control group too, where it comes first.
const goMemoryLimit = "GOMEMLIMIT"

// Env adds to a plugin's environment what it is told of its budget. What the
// operator has set is not changed.
func (r *Room) Env(env []string) []string {
	if r == nil {
		return env
	}
	var told wire.Budget
	if r.limits.MemorySoft > 0 && !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, goMemoryLimit+"=") }) {
		env = append(slices.Clone(env), fmt.Sprintf("%s=%d", goMemoryLimit, r.limits.MemorySoft))
		told.GoMemoryLimit = true
	}
	if r.limits.CPU > 0 && !r.cpu {
		told.Nice = niceness
	}
	for _, g := range r.groups {
		told.CommandGroups = append(told.CommandGroups, g.own)
	}
	return append(slices.Clone(env), wire.BudgetEnv+"="+told.String())
}

// String tells what bounds the process, for people.
func (r *Room) String() string {
	if r == nil {
		return ""
	}
	var parts []string
	if r.limits.Memory > 0 {
		how := "watched"
		if r.memory {
			how = "by a control group, and watched"
		}
		parts = append(parts, fmt.Sprintf("memory %s, %s", Size(r.limits.Memory), how))
	}
	if r.limits.CPU > 0 {
		how := "at most: by a lower priority, if it can be undone for commands"
		if r.cpu {
			how = "by a control group"
		}
		parts = append(parts, fmt.Sprintf("%v processors, %s", r.limits.CPU, how))
	}
	if r.limits.Memory == 0 && r.limits.MemorySoft > 0 {
		parts = append(parts, fmt.Sprintf("a warning from %s of memory on", Size(r.limits.MemorySoft)))
	}
	if r.why != nil {
		parts = append(parts, fmt.Sprintf("no control group: %v", r.why))
	}
	return strings.Join(parts, "; ")
}
