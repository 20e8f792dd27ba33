package transfer

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// tree is a folder and what is below it, on either side. Paths are names joined
// by slashes, and . is the folder itself. No method follows a link at the end
// of its path; infos tell what an entry itself is, with Link for links.
type tree interface {
	lstat(ctx context.Context, path string) (workspace.FileInfo, error)
	readDir(ctx context.Context, path string) ([]workspace.FileInfo, error)
	// open reads a regular file.
	open(ctx context.Context, path string) (io.ReadCloser, error)

	// mkdir makes one folder with exactly these permissions.
	mkdir(ctx context.Context, path string, mode fs.FileMode) error
	// write makes a file, or replaces the file or link that old is, with exactly
	// these permissions. What fails leaves no half of it, where that can be.
	write(ctx context.Context, path string, mode fs.FileMode, old *workspace.FileInfo, content io.Reader) error
	// symlink makes a link, or replaces the file or link that old is.
	symlink(ctx context.Context, target, path string, old *workspace.FileInfo) error
	chmod(ctx context.Context, path string, mode fs.FileMode) error

	// describe names a path for people.
	describe(path string) string
	close() error
}

// Side is this machine or a workspace.
type Side interface {
	// stat follows links.
	stat(ctx context.Context, path string) (workspace.FileInfo, error)
	lstat(ctx context.Context, path string) (workspace.FileInfo, error)
	// real is path with its links followed.
	real(ctx context.Context, path string) (string, error)
	// split cuts off the last name of a path.
	split(path string) (folder, name string)
	// tree opens a folder; create makes it and its parents where missing.
	tree(ctx context.Context, folder string, create bool) (tree, error)
	// checkName refuses a name that would mean more than one entry here.
	checkName(name string) error
	describe(path string) string
}

// Endpoint is a path on a side.
type Endpoint struct {
	Side Side
	Path string
}

func join(folder, name string) string {
	switch {
	case name == ".":
		return folder
	case folder == ".":
		return name
	case strings.HasSuffix(folder, "/"):
		return folder + name
	}
	return folder + "/" + name
}

// checkName refuses what is not the name of one entry of a folder, whatever a
// provider calls one.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("its folder lists an entry %q, which would lead out of the destination", name)
	}
	return nil
}

// checkLocalName is checkName, and refuses names that mean more than one entry
// on this machine's system.
func checkLocalName(name string) error {
	if strings.ContainsRune(name, filepath.Separator) || !filepath.IsLocal(name) {
		return fmt.Errorf("%q cannot be a file's name on this machine", name)
	}
	return nil
}
