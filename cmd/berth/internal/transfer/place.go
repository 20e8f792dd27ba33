package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// Place is an argument of cp: a file on this machine, in a workspace, or a
// standard stream.
type Place struct {
	// Ref is zero for this machine.
	Ref workspace.Ref
	// Path is the file; in a workspace . for its working directory.
	Path string
	// Stream is an argument of -: standard input or output.
	Stream bool
}

// Remote reports whether the place is in a workspace.
func (p Place) Remote() bool { return !p.Ref.IsZero() }

// ParsePlace reads REF:PATH, a local path, or -. What begins like a path (. or
// /) is local, colon or not; so is what has a colon but no ref before it, if
// such a file is there. Otherwise that is an error, which says why.
func ParsePlace(s string) (Place, error) {
	switch {
	case s == "-":
		return Place{Stream: true}, nil
	case s == "":
		return Place{}, fmt.Errorf("an empty path: want REF:PATH, a local path, or -")
	case !strings.Contains(s, ":"), s[0] == '.', filepath.IsAbs(s):
		return Place{Path: s}, nil
	}
	ref, path, err := workspace.SplitRefPath(s)
	if err == nil {
		return Place{Ref: ref, Path: Here(path)}, nil
	}
	if _, statErr := os.Lstat(s); statErr == nil {
		return Place{Path: s}, nil
	}
	return Place{}, fmt.Errorf("%w; a local file with a colon in its name is written ./NAME", err)
}

// Here is a workspace's path as a command line may leave it out.
func Here(path string) string {
	if path == "" {
		return "."
	}
	return path
}
