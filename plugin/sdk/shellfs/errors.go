package shellfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

// The exit statuses of operations.sh.
const (
	statusExist    = 65
	statusIsDir    = 66
	statusNotDir   = 67
	statusLoop     = 68
	statusDenied   = 69
	statusInvalid  = 70
	statusSpecial  = 71
	statusCrossDev = 73
	statusWorkDir  = 74
)

var statuses = map[int]error{
	statusExist:    fs.ErrExist,
	statusIsDir:    syscall.EISDIR,
	statusNotDir:   syscall.ENOTDIR,
	statusLoop:     syscall.ELOOP,
	statusDenied:   syscall.EACCES,
	statusInvalid:  syscall.EINVAL,
	statusCrossDev: syscall.EXDEV,
}

// messages are the words of the C libraries (glibc, musl) and shells for what can
// happen to a file, as LC_ALL=C makes them, in lower case.
var messages = []struct {
	text  string
	errno syscall.Errno
}{
	{"no such file or directory", syscall.ENOENT},
	{"directory nonexistent", syscall.ENOENT}, // dash
	{"no such file", syscall.ENOENT},          // dash
	{"nonexistent directory", syscall.ENOENT}, // ash
	{"not a directory", syscall.ENOTDIR},
	{"is a directory", syscall.EISDIR},
	{"file exists", syscall.EEXIST},
	{"directory not empty", syscall.ENOTEMPTY},
	{"permission denied", syscall.EACCES},
	{"operation not permitted", syscall.EPERM},
	{"too many levels of symbolic links", syscall.ELOOP},
	{"symbolic link loop", syscall.ELOOP},
	{"file name too long", syscall.ENAMETOOLONG},
	{"filename too long", syscall.ENAMETOOLONG},
	{"no space left on device", syscall.ENOSPC},
	{"disk quota exceeded", syscall.EDQUOT},
	{"quota exceeded", syscall.EDQUOT},
	{"file too large", syscall.EFBIG},
	{"read-only file system", syscall.EROFS},
	{"text file busy", syscall.ETXTBSY},
	{"device or resource busy", syscall.EBUSY},
	{"resource busy", syscall.EBUSY},
	{"invalid argument", syscall.EINVAL},
	{"invalid cross-device link", syscall.EXDEV},
	{"cross-device link", syscall.EXDEV},
	{"too many links", syscall.EMLINK},
	{"input/output error", syscall.EIO},
	{"i/o error", syscall.EIO},
	{"cannot allocate memory", syscall.ENOMEM},
	{"out of memory", syscall.ENOMEM},
	{"cannot fork", syscall.EAGAIN},
	{"can't fork", syscall.EAGAIN},
	{"resource temporarily unavailable", syscall.EAGAIN},
	{"too many open files", syscall.EMFILE},
	{"stale file handle", syscall.ESTALE},
	{"operation not supported", syscall.ENOTSUP},
	{"not supported", syscall.ENOTSUP},
}

// failure is what a script's exit status and stderr mean.
func failure(status int, stderr []byte) error {
	text := strings.TrimSpace(string(stderr))
	switch status {
	case statusWorkDir:
		return fmt.Errorf("is the working directory or holds it: %w", workspace.ErrInvalid)
	case statusSpecial:
		return fmt.Errorf("is %s, not a regular file: %w", text, workspace.ErrInvalid)
	}
	if err := statuses[status]; err != nil {
		return err
	}
	switch errno := errnoIn(stderr); {
	case errno == syscall.EAGAIN, errno == syscall.ENOMEM, errno == syscall.EMFILE:
		return fmt.Errorf("a limit of the workspace is reached: %s: %w: %w", text, errno, workspace.ErrTransient)
	case errno != 0:
		return errno
	case text == "":
		return fmt.Errorf("a file operation's script ended with status %d and no reason", status)
	}
	return fmt.Errorf("a file operation's script ended with status %d: %s", status, text)
}

// errnoIn finds the first line that ends in the system's words for an error: what
// comes before them may be a name that holds anything.
func errnoIn(stderr []byte) syscall.Errno {
	for line := range bytes.Lines(stderr) {
		text := strings.ToLower(string(bytes.TrimRight(line, "\r\n")))
		for _, m := range messages {
			if rest, ok := strings.CutSuffix(text, m.text); ok && (rest == "" || strings.HasSuffix(rest, ": ") || strings.HasSuffix(rest, ":")) {
				return m.errno
			}
		}
	}
	return 0
}
