//go:build unix

package sdk

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/shared/wire"
)

// holdLifeline calls gone when the other end of the host's lifeline closes
// (contract B4). Without one it does nothing. Children get neither the descriptor
// nor its variable.
func holdLifeline(gone func()) error {
	text, ok := os.LookupEnv(wire.LifelineEnv)
	if !ok {
		return nil
	}
	if err := os.Unsetenv(wire.LifelineEnv); err != nil {
		return err
	}
	fd, err := strconv.ParseUint(text, 10, 31)
	if err != nil || fd <= 2 {
		return fmt.Errorf("%s=%q is not the number of a descriptor", wire.LifelineEnv, text)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return fmt.Errorf("%s=%q: %w", wire.LifelineEnv, text, err)
	}
	file := os.NewFile(uintptr(fd), "lifeline")
	go func() { // ends with the process
		buf := make([]byte, 16)
		for {
			if _, err := file.Read(buf); err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		gone()
	}()
	return nil
}

// claimStdout keeps the real standard output for go-plugin's one line, as
// os.Stdout, and makes descriptor 1 the same as stderr: whatever a library or a
// child prints there cannot disturb the handshake.
func claimStdout() error {
	fd, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, unix.Stderr+1)
	if err != nil {
		return fmt.Errorf("duplicating it: %w", err)
	}
	if err := unix.Dup2(unix.Stderr, unix.Stdout); err != nil {
		return fmt.Errorf("pointing descriptor 1 at stderr: %w", err)
	}
	os.Stdout = os.NewFile(uintptr(fd), "/dev/stdout")
	return nil
}
