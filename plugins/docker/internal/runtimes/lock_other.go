//go:build !unix

package runtimes

import "errors"

// tryLock has none to give.
func tryLock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
