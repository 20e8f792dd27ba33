package host

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/berth-dev/berth/host/internal/budget"
	"github.com/berth-dev/berth/host/internal/supervisor"
)

// Budget bounds a plugin's own process, not what its commands use, and how often it
// may die. The zero value bounds the deaths alone.
type Budget struct {
	// Memory is how much the process may use, in bytes. Where this process may make
	// control groups the kernel sees to it; in any case a plugin that uses more is
	// ended, and started by the next call. Zero is no bound.
	Memory int64
	// MemorySoft is from where on a warning is logged, and a plugin written in Go
	// collects its garbage harder. Zero is four fifths of Memory.
	MemorySoft int64
	// CPU is how many processors the process may keep busy, such as 0.5. Where no
	// control group can see to it, the plugin takes a lower priority, if it can give
	// its commands the usual one. Zero is no bound.
	CPU float64
	// Restarts is how often the plugin may die within RestartWindow: crashes, starts
	// that failed, and whatever made the host end it, but no swap, idle stop or end
	// in order. At one more its calls fail, at once, with a [*QuarantineError], until
	// [Host.Reload] or another binary. Zero is 20, [UnlimitedRestarts] without end.
	Restarts int
	// RestartWindow is how long a death counts. Zero is 10 min.
	RestartWindow time.Duration
}

// UnlimitedRestarts is for [Budget.Restarts].
const UnlimitedRestarts = -1

// QuarantineError is what calls fail with while a plugin that died too often is not
// started. errors.As finds a [*workspace.PluginError] in it too.
type QuarantineError = supervisor.QuarantineError

// limits are what bounds the process.
func (b Budget) limits() budget.Limits {
	return budget.Limits{Memory: b.Memory, MemorySoft: b.MemorySoft, CPU: b.CPU}
}

// restarts are what the supervisor takes.
func (b Budget) restarts() int {
	switch b.Restarts {
	case 0:
		return supervisor.DefaultRestarts
	case UnlimitedRestarts:
		return 0
	}
	return b.Restarts
}

// check tells what is wrong with a provider's budget.
func (p Provider) checkBudget(path string) error {
	key, reason := p.Budget.limits().Validate()
	switch {
	case reason != "":
	case p.InProcess != nil && p.Budget.limits() != budget.Limits{}:
		reason = "a provider that is served in this process cannot be bounded"
	case p.Budget.Restarts < UnlimitedRestarts:
		key, reason = "restarts", "want a number above zero, or UnlimitedRestarts"
	case p.Budget.RestartWindow < 0:
		key, reason = "restart_window", "must not be negative"
	default:
		return nil
	}
	if key != "" {
		path = join(path, key)
	}
	return p.fault(path, reason)
}

// budget reads a provider's budget.
func (d *decoder) budget(path string, node ast.Node) (b Budget, err error) {
	err = d.mapping(path, node, func(key, path string, value ast.Node) (err error) {
		switch key {
		case "memory":
			b.Memory, err = d.size(path, value)
		case "memory_soft":
			b.MemorySoft, err = d.size(path, value)
		case "cpu":
			b.CPU, err = d.processors(path, value)
		case "restarts":
			b.Restarts, err = d.restarts(path, value)
		case "restart_window":
			b.RestartWindow, err = d.duration(path, value)
		default:
			return d.unknown(path, key, "memory", "memory_soft", "cpu", "restarts", "restart_window")
		}
		return err
	})
	return b, err
}

// size reads a number of bytes above zero with its unit.
func (d *decoder) size(path string, node ast.Node) (int64, error) {
	const want = "a size with its unit, such as 256MiB or 1GiB"
	if _, ok := scalarString(node); !ok {
		return 0, d.wrongType(path, node, want)
	}
	text, err := d.string(path, node)
	if err != nil {
		return 0, err
	}
	n, err := budget.ParseSize(text)
	if err != nil || n == 0 {
		return 0, d.source.fault(path, "want "+want)
	}
	return n, nil
}

// processors reads a number of them.
func (d *decoder) processors(path string, node ast.Node) (float64, error) {
	want := fmt.Sprintf("a number of processors from %v on, such as 0.5", budget.MinCPU)
	var n float64
	switch v := node.(type) {
	case *ast.IntegerNode:
		whole, err := Section{decoder: d, path: path, node: node}.Integer()
		if err != nil {
			return 0, d.source.fault(path, "want "+want)
		}
		n = float64(whole)
	case *ast.FloatNode:
		n = v.Value
	case *ast.StringNode, *ast.LiteralNode: // of a variable
		text, err := d.string(path, node)
		if err != nil {
			return 0, err
		}
		if n, err = strconv.ParseFloat(text, 64); err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			return 0, d.source.fault(path, "want "+want)
		}
	default:
		return 0, d.wrongType(path, node, want)
	}
	if n <= 0 {
		return 0, d.source.fault(path, "want "+want)
	}
	return n, nil
}

// unlimited is the word for [UnlimitedRestarts].
const unlimited = "unlimited"

func (d *decoder) restarts(path string, node ast.Node) (int, error) {
	const want = "a whole number above zero, or " + unlimited
	switch node.(type) {
	case *ast.IntegerNode:
		n, err := Section{decoder: d, path: path, node: node}.Integer()
		if err != nil || n == 0 || n > math.MaxInt32 {
			return 0, d.source.fault(path, "want "+want)
		}
		return int(n), nil
	case *ast.StringNode, *ast.LiteralNode:
		text, err := d.string(path, node)
		if err != nil {
			return 0, err
		}
		if text == unlimited {
			return UnlimitedRestarts, nil
		}
		n, err := strconv.ParseInt(text, 10, 32) // of a variable
		if err != nil || n <= 0 {
			return 0, d.source.fault(path, "want "+want)
		}
		return int(n), nil
	}
	return 0, d.wrongType(path, node, want)
}
