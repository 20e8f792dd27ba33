//go:build unix

package catalog

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is how many links a path may lead through: the kernel's own limit.
const maxLinks = 40

// CheckTrust follows an absolute path as the kernel does, and returns an
// [*UntrustedError] if anybody but root and this user could make it lead to other
// bytes: by writing the file, or a folder on the way in which they may rename.
//
// A sticky folder, such as /tmp, is good enough on the way: what is in it can only
// be renamed by its owner. It is not for the file's own folder, nor for that of a
// link to it, where others may put what the file looks for beside itself. A group
// that may write is taken for this user alone if its id is the user's own: such
// groups are made by systems whose umask is 002, and hold nobody else. Group 0 is
// not: containers are often run by any user in it.
func CheckTrust(path string) error {
	t := trust{target: path, uid: uint32(os.Geteuid())}
	return t.follow(path)
}

type trust struct {
	target string
	uid    uint32
}

func (t trust) follow(path string) error {
	at := string(filepath.Separator)
	folder, err := os.Lstat(at)
	if err != nil {
		return err
	}
	if err := t.check(at, folder, true); err != nil {
		return err
	}
	links := 0
	for rest := parts(path); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			if folder, err = os.Lstat(at); err != nil {
				return err
			}
			continue
		}
		if len(rest) == 0 { // this is the file's own folder, or its link's
			if err := t.check(at, folder, false); err != nil {
				return err
			}
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			// Nobody may write a link. In a sticky folder its owner may replace it.
			if folder.Mode()&fs.ModeSticky != 0 && !t.ours(info) {
				return t.belongs(next, info)
			}
			if links++; links > maxLinks {
				return &fs.PathError{Op: "follow", Path: path, Err: syscall.ELOOP}
			}
			target, err := os.Readlink(next)
			if err != nil {
				return err
			}
			if filepath.IsAbs(target) {
				at = string(filepath.Separator)
				if folder, err = os.Lstat(at); err != nil {
					return err
				}
			}
			rest = slices.Concat(parts(target), rest)
			continue
		}
		if err := t.check(next, info, info.IsDir()); err != nil {
			return err
		}
		at, folder = next, info
	}
	return nil
}

func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, string(filepath.Separator)), func(name string) bool { return name == "" || name == "." })
}

// check says who else may write a file or folder. Sticky tells whether the folder
// may be anybody's to write if it is sticky.
func (t trust) check(path string, info fs.FileInfo, sticky bool) error {
	if !t.ours(info) {
		return t.belongs(path, info)
	}
	if sticky && info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	group := info.Sys().(*syscall.Stat_t).Gid
	var writers string
	switch perm := info.Mode().Perm(); {
	case perm&0o002 != 0:
		writers = "may be written by anybody"
	case perm&0o020 != 0 && (group != t.uid || group == 0):
		writers = fmt.Sprintf("may be written by group %d", group)
	default:
		return nil
	}
	return &UntrustedError{
		Target: t.target, Path: path, Mode: info.Mode(),
		Reason: writers + ", who could have this user run anything",
		Advice: "chmod go-w it",
	}
}

// ours says whether a file belongs to this user, or to root, who may do anything
// in any case.
func (t trust) ours(info fs.FileInfo) bool {
	owner := info.Sys().(*syscall.Stat_t).Uid
	return owner == 0 || owner == t.uid
}

func (t trust) belongs(path string, info fs.FileInfo) error {
	owners := fmt.Sprintf("root or to this user (uid %d)", t.uid)
	if t.uid == 0 {
		owners = "root, who runs this"
	}
	return &UntrustedError{
		Target: t.target, Path: path, Mode: info.Mode(),
		Reason: fmt.Sprintf("belongs to uid %d, who could have this user run anything, and not to %s", info.Sys().(*syscall.Stat_t).Uid, owners),
		Advice: "chown it, or use a copy that does",
	}
}
