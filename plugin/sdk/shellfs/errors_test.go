package shellfs

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestErrorsAreKnownByTheirWords(t *testing.T) {
	for stderr, want := range map[string]error{
		"stat: cannot statx '/a: b\nc': No such file or directory\n":                                      fs.ErrNotExist,
		"stat: can't stat '/x': Symbolic link loop\n":                                                     syscall.ELOOP,
		"dd: error writing 'standard output': No space left on device\n0+1 records in\n0+0 records out\n": syscall.ENOSPC,
		"sh: 1: cannot create /x: Permission denied\n":                                                    fs.ErrPermission,
		"sh: 1: cannot create /x/y: Directory nonexistent\n":                                              fs.ErrNotExist,
		"sh: can't create /x/y: nonexistent directory\n":                                                  fs.ErrNotExist,
		"mv: cannot move 'a' to 'b': Filename too long":                                                   syscall.ENAMETOOLONG,
		"rm: cannot remove '/x': Read-only file system\n":                                                 syscall.EROFS,
		"rm: can't remove 'Is a directory': Directory not empty\n":                                        syscall.ENOTEMPTY,
		"sh: can't fork: Resource temporarily unavailable\n":                                              workspace.ErrTransient,
	} {
		if err := failure(1, []byte(stderr)); !errors.Is(err, want) {
			t.Errorf("%q is %v, want %v", stderr, err, want)
		}
	}
	for _, stderr := range []string{"", "something else\n", "a file named No such file or directory was fine\n", "xIs a directory\n"} {
		var errno syscall.Errno
		if err := failure(1, []byte(stderr)); err == nil || errors.As(err, &errno) {
			t.Errorf("%q is %v, want an error of no kind", stderr, err)
		}
	}
	if err := failure(statusWorkDir, nil); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("the working directory: %v", err)
	}
}

func FuzzParseListing(f *testing.F) {
	f.Add([]byte("a\x00b\x00\x0081a4 1 2001-02-03 04:05:06.123456000 +0000\na1ff 1 2001-02-03 04:05:06.123456000 +0000\n\x00b\x00a\x0081a4 1 2001-02-03 04:05:06.123456000 +0000\n\x00"), false)
	f.Add([]byte("a\x0081a4 1 2001-02-03 04:05:06.123456000 +0000\n\x00\x00"), true)
	f.Fuzz(func(t *testing.T, out []byte, slow bool) {
		infos, err := parseListing(out, slow)
		for _, info := range infos {
			if info.Name == "" && err == nil {
				t.Error("an entry without a name")
			}
		}
	})
}
