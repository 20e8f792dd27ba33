package posix

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// incarnation is the same for as long as the folder lives. An inode number
// alone is given again at once to the next folder; the device's number is left
// out, since it may change when the machine starts again.
func incarnation(root *os.File) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(root.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return "", fmt.Errorf("statx: %w", err)
	}
	return fmt.Sprintf("%d-%d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec), nil
}
