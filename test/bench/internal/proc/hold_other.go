//go:build !unix

package proc

import "errors"

// Stop is not to be had here.
func Stop(int) error { return errors.ErrUnsupported }

// Continue is not to be had here.
func Continue(int) error { return errors.ErrUnsupported }
