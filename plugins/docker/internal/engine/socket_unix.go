//go:build unix

package engine

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// socketGroup is the group that may use a socket, or "".
func socketGroup(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&0o020 == 0 {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.FormatUint(uint64(stat.Gid), 10)
	if group, err := user.LookupGroupId(id); err == nil {
		return group.Name
	}
	return id
}
