package workspace

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// Modes of what a write or MkdirAll makes unless told otherwise (contract F2).
const (
	DefaultFileMode fs.FileMode = 0o644
	DefaultDirMode  fs.FileMode = 0o755
)

// FileInfo describes a file. Stat and ReadDir tell what an entry leads to,
// Lstat what it is; both say whether it is a link and where that points
// (contract F4).
type FileInfo struct {
	// Name is the last element of the path, any bytes but NUL and /.
	Name string
	// Size is in bytes; of a link itself, the length of its target.
	Size int64
	// Mode holds permissions and type. A link whose target cannot be reached
	// keeps fs.ModeSymlink in a listing.
	Mode fs.FileMode
	// ModTime is zero where the provider has none.
	ModTime time.Time
	// Link says that the entry itself is a symbolic link, Target what it holds.
	Link   bool
	Target string
}

// IsDir reports whether the file, or what a followed link leads to, is a
// directory.
func (i FileInfo) IsDir() bool { return i.Mode.IsDir() }

// ReadOptions say which part of a file to read. The zero value is all of it.
type ReadOptions struct {
	// Offset is where to begin, in bytes; beyond the end nothing is read.
	Offset int64
	// Length is how many bytes at most; zero means to the end.
	Length int64
}

// WriteOptions say how to write a file. The zero value creates or replaces.
type WriteOptions struct {
	// Mode is for a file that the write makes; an existing one keeps its own.
	// Zero means [DefaultFileMode].
	Mode fs.FileMode
	// Exclusive fails with [fs.ErrExist] if the path is there, a dangling link
	// included.
	Exclusive bool
	// Append adds to the end of an existing file.
	Append bool
	// ModTime is set on the file if not zero.
	ModTime time.Time
}

// FileReader reads one file as it was when opened. It must be closed.
type FileReader interface {
	io.ReadCloser
	// Info is the file as it was when opened, links followed.
	Info() FileInfo
}

// FileWriter writes one file. Nothing is visible before Close returns nil,
// where the provider can avoid it (contract F2).
type FileWriter interface {
	io.Writer
	// Close publishes what was written. After Abort it does nothing.
	Close() error
	// Abort leaves the file as it was. After Close it does nothing.
	Abort() error
}

// Filesystem is what every provider with files has. Paths are POSIX paths,
// absolute or relative to the working directory; errors are [*fs.PathError]
// with the path as given (contract F1, F3).
type Filesystem interface {
	// Stat follows links; a dangling one is [fs.ErrNotExist].
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Lstat does not follow the last element.
	Lstat(ctx context.Context, path string) (FileInfo, error)
	// ReadDir is complete and sorted by name, byte by byte.
	ReadDir(ctx context.Context, path string) ([]FileInfo, error)
	// Open reads a regular file; anything else is an error at once, never a
	// wait. The context lasts until the reader is closed.
	Open(ctx context.Context, path string, opts ReadOptions) (FileReader, error)
	// Create writes through an existing link and makes missing parents. The
	// context lasts until the writer is closed; when it ends first, the write
	// is aborted.
	Create(ctx context.Context, path string, opts WriteOptions) (FileWriter, error)
	// MkdirAll makes parents and is idempotent (contract F5).
	MkdirAll(ctx context.Context, path string) error
	// Remove takes a file, a link itself, or a tree (contract F6).
	Remove(ctx context.Context, path string) error
}

// Stored reads the files of a workspace as they are kept: the workspace is not
// started for that. Paths and errors are as those of [Filesystem].
type Stored interface {
	Stat(ctx context.Context, path string) (FileInfo, error)
	Lstat(ctx context.Context, path string) (FileInfo, error)
	ReadDir(ctx context.Context, path string) ([]FileInfo, error)
	Open(ctx context.Context, path string, opts ReadOptions) (FileReader, error)
	RealPather
}

// RealPather resolves like realpath -m: links followed, missing names kept, a
// loop is ELOOP (contract F7).
type RealPather interface {
	RealPath(ctx context.Context, path string) (string, error)
}

// Renamer renames as [os.Rename] does (contract F10).
type Renamer interface {
	Rename(ctx context.Context, from, to string) error
}

// Linker makes and reads symbolic links as in os (contract F10).
type Linker interface {
	// Symlink makes path a link that holds target.
	Symlink(ctx context.Context, target, path string) error
	Readlink(ctx context.Context, path string) (string, error)
}

// Chmoder changes permissions as [os.Chmod] does (contract F10).
type Chmoder interface {
	Chmod(ctx context.Context, path string, mode fs.FileMode) error
}

// Chtimer changes the modification time, links followed (contract F10).
type Chtimer interface {
	Chtimes(ctx context.Context, path string, modTime time.Time) error
}

// ValidatePath checks what no file can be named: an empty path or a NUL byte
// (contract C1). The error is an [*fs.PathError] of op that wraps [ErrInvalid].
func ValidatePath(op, path string) error {
	switch {
	case path == "":
		return &fs.PathError{Op: op, Path: path, Err: fmt.Errorf("the path is empty (. is the working directory): %w", ErrInvalid)}
	case strings.IndexByte(path, 0) >= 0:
		return &fs.PathError{Op: op, Path: path, Err: fmt.Errorf("the path holds a NUL byte: %w", ErrInvalid)}
	}
	return nil
}
