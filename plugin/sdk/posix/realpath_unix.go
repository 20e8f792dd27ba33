//go:build unix

package posix

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// maxLinks is after how many links a path is called a loop, as in Linux.
const maxLinks = 40

// realPath walks the names one by one: done has no links left in it.
func realPath(abs string) (string, error) {
	done, todo := "/", strings.Split(abs, "/")
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = trimSlashes(done[:strings.LastIndexByte(done, '/')+1])
			continue
		}
		next := done + "/" + name
		if done == "/" {
			next = "/" + name
		}
		target, err := os.Readlink(next)
		switch {
		case err == nil:
		case errors.Is(err, syscall.EINVAL), errors.Is(err, fs.ErrNotExist), isNotDir(err): // no link, or missing
			done = next
			continue
		default:
			return "", err
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}
