package display

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-dev/berth/shared/workspace"
)

// In puts the name of a workspace before an error that tells only of a file or
// a command there. Other errors name it themselves.
func In(name string, err error) error {
	switch err.(type) { //nolint:errorlint // what wraps one of these has said where it is from
	case *fs.PathError, *os.LinkError, *workspace.TimeoutError, *workspace.OutputLimitError:
		return fmt.Errorf("%s: %w", name, err)
	}
	return err
}
