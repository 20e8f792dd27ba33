package wire

import (
	"encoding/json"
	"fmt"
)

// BudgetEnv names the variable by which a plugin is told what bounds its process: a
// [Budget] as JSON. It is there only if something does. It is for the plugin's
// process alone, and not for what it starts (contract C9).
const BudgetEnv = "BERTH_BUDGET"

// Budget is what a plugin has to know of the bounds of its own process, so that
// none of them reaches a command.
type Budget struct {
	// CommandGroups are the folders of the control groups that the host is in, one
	// for each hierarchy in which the plugin was put into another. Before a plugin
	// runs a command on this machine, it moves the process that will start it
	// there.
	CommandGroups []string `json:"command_groups,omitempty"`
	// Nice is the niceness that the plugin takes if it can undo that for the
	// commands that it runs; zero is none.
	Nice int `json:"nice,omitempty"`
	// GoMemoryLimit says that GOMEMLIMIT is there for the plugin's process, and not
	// for its children.
	GoMemoryLimit bool `json:"go_memory_limit,omitempty"`
}

// String is the variable's value.
func (b Budget) String() string {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // strings, a number and a boolean: they marshal
	}
	return string(text)
}

// ParseBudget reads the variable's value. Fields that are not known are passed over.
func ParseBudget(text string) (Budget, error) {
	var b Budget
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return Budget{}, fmt.Errorf("%s: %w", BudgetEnv, err)
	}
	return b, nil
}
