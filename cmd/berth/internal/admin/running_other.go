//go:build !linux

package admin

import (
	"errors"
	"os"
)

// openExecuted fails: only Linux tells.
func openExecuted(int) (*os.File, error) { return nil, errors.ErrUnsupported }
