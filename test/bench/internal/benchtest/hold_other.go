//go:build !unix

package benchtest

import "errors"

func signalStop(int) error { return errors.ErrUnsupported }
func release(int) error    { return errors.ErrUnsupported }
