package catalog

import (
	"fmt"
	"io/fs"
)

// UntrustedError is a file that is not run, or a folder that is not used, because
// another user could have it hold something else. It wraps [fs.ErrPermission].
type UntrustedError struct {
	// Target is what was to be used, Path what is wrong on the way to it.
	Target, Path string
	// Mode is that of Path.
	Mode fs.FileMode
	// Reason says who may change it, Advice what to do.
	Reason, Advice string
}

func (e *UntrustedError) Error() string {
	what := e.Path
	if e.Path != e.Target {
		what = fmt.Sprintf("%s: %s, which leads to it,", e.Target, e.Path)
	}
	return fmt.Sprintf("%s has mode %04o and %s: %s", what, unixMode(e.Mode), e.Reason, e.Advice)
}

// Unwrap makes it a matter of permission.
func (e *UntrustedError) Unwrap() error { return fs.ErrPermission }

// unixMode is a mode as chmod takes it.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for _, special := range []struct {
		mode fs.FileMode
		bit  uint32
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if mode&special.mode != 0 {
			bits |= special.bit
		}
	}
	return bits
}
