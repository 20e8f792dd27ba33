package posix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-dev/berth/shared/wire"
)

// commandGroups are the control groups that commands belong in, if this process is
// in others that are for itself alone (contract C9). The SDK removes the variable
// later.
func commandGroups() []string {
	told, err := wire.ParseBudget(os.Getenv(wire.BudgetEnv))
	if err != nil {
		return nil // there is none; or the SDK tells of it
	}
	return told.CommandGroups
}

// groupError is a keeper that could not be put where commands belong.
type groupError struct{ error }

// Unwrap returns the cause.
func (e *groupError) Unwrap() error { return e.error }

// enterGroups puts a keeper, which has not been asked for anything yet, into control
// groups. All that it will start is in them too.
func enterGroups(keeper int, groups []string) error {
	for _, group := range groups {
		if err := writeMember(filepath.Join(group, "cgroup.procs"), keeper); err != nil {
			return &groupError{fmt.Errorf("starting the commands' keeper: putting it outside of the plugin's own limits: %w", err)}
		}
	}
	return nil
}

func writeMember(path string, pid int) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strconv.Itoa(pid))
	return errors.Join(err, file.Close())
}
