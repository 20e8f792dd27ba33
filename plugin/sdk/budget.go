package sdk

import (
	"os"

	"github.com/berth-dev/berth/shared/wire"
)

// goMemoryLimit is what the host has set if it says so; the runtime has read it.
const goMemoryLimit = "GOMEMLIMIT"

// takeBudget does what the host asks of this process for its budget, and leaves
// nothing of it to its children (contract C9).
func takeBudget() error {
	text, ok := os.LookupEnv(wire.BudgetEnv)
	if !ok {
		return nil
	}
	if err := os.Unsetenv(wire.BudgetEnv); err != nil {
		return err
	}
	told, err := wire.ParseBudget(text)
	if err != nil {
		return err
	}
	if told.GoMemoryLimit {
		if err := os.Unsetenv(goMemoryLimit); err != nil {
			return err
		}
	}
	if told.Nice > 0 {
		return beNice(told.Nice)
	}
	return nil
}
