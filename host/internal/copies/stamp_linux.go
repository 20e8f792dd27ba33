package copies

import (
	"io/fs"
	"syscall"
	"time"
)

// stamp tells a file that was verified from one that was changed since: nobody can
// set a file's change time.
type stamp struct {
	digest   string
	dev, ino uint64
	size     int64
	mtime    syscall.Timespec
	ctime    syscall.Timespec
}

func stampOf(info fs.FileInfo, digest string) stamp {
	st := info.Sys().(*syscall.Stat_t)
	return stamp{digest, uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim} //nolint:unconvert // Dev's type differs by architecture
}

// settleTime is well over the granularity of a file system's clock: a change within
// it may leave the change time as it was.
const settleTime = 2 * time.Second

// settled says whether a change from now on would show.
func (s stamp) settled() bool {
	return time.Since(time.Unix(s.ctime.Unix())) > settleTime
}
