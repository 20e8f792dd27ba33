//go:build !unix

package benchtest

import "errors"

func hold(int) error    { return errors.ErrUnsupported }
func release(int) error { return errors.ErrUnsupported }
