//go:build !unix

package admin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// makeFolder refuses: neither the mode of a folder nor that of a socket keeps
// other users out here.
func makeFolder(string) error { return supported() }

// supported says why there are no admin sockets.
func supported() error {
	return fmt.Errorf("there is none on %s, where nothing would keep other users away from it: %w", runtime.GOOS, errors.ErrUnsupported)
}

type lock struct{}

func takeLock(context.Context, string) (*lock, error) { return nil, errors.ErrUnsupported }

func (*lock) release() {}

func holder(string) (pid int, held bool) { return 0, false }
