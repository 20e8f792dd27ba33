//go:build !unix

package testimages

import "context"

// lock does nothing where no image can be made.
func lock(context.Context, string) (unlock func(), err error) { return func() {}, nil }
