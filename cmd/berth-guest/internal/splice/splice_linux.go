package splice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk/guest/serve"
)

const (
	// socketWait is how long the guest may take to serve: it is started with the
	// container, which may have happened just now, or again because it died.
	socketWait = 5 * time.Second
	// socketRetry is between two looks for the socket.
	socketRetry = 10 * time.Millisecond
	// lastWords is how long the guest may go on to write when its client has
	// said that it is done.
	lastWords = 5 * time.Second
	// bufferSize is what a pipe holds.
	bufferSize = 64 << 10
)

// What may go wrong. Each has an exit status of its own.
var (
	// ErrNoGuest: nobody serves the socket.
	ErrNoGuest = errors.New("no guest serves the socket")
	// ErrForbidden: this user may not reach the socket.
	ErrForbidden = errors.New("the socket is another user's")
	// ErrRefused: the guest ended the connection without a word.
	ErrRefused = errors.New("the guest refused the connection")
)

// Run joins in and out to the socket until either side ends. The guest reads in
// itself where that is a pipe or a socket: then what a client sends is copied once
// less on its way. It returns with reads of in still under way, which end with the
// process.
func Run(ctx context.Context, path string, in *os.File, out io.Writer) error {
	conn, err := dial(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	if serve.CanHandOver(in) {
		err := serve.HandOver(conn, in)
		switch {
		case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
			return fmt.Errorf("%s: %w", path, ErrRefused)
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		go func() {
			awaitEnd(in)
			_ = conn.SetReadDeadline(time.Now().Add(lastWords))
		}()
	} else {
		go func() {
			_, err := io.CopyBuffer(conn, in, make([]byte, bufferSize))
			if err != nil { // the client's end, or the guest's, which is seen below
				_ = conn.Close()
				return
			}
			_ = conn.CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(lastWords))
		}()
	}
	n, err := io.CopyBuffer(out, conn, make([]byte, bufferSize))
	switch {
	case n == 0 && (err == nil || errors.Is(err, syscall.ECONNRESET)):
		return fmt.Errorf("%s: %w", path, ErrRefused)
	case err == nil, errors.Is(err, net.ErrClosed), isTimeout(err), // the guest's end
		errors.Is(err, syscall.EPIPE): // the client's
		return nil
	}
	return fmt.Errorf("%s: joining it to the standard streams: %w", path, err)
}

// awaitEnd waits until nobody writes to a pipe or socket any more, and reads nothing.
func awaitEnd(in *os.File) {
	raw, err := in.SyscallConn()
	if err != nil {
		return
	}
	// Its number must stay for as long as a thread waits for it.
	_ = raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, -1) //nolint:gosec // a descriptor is a small number
			if n > 0 || !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
}

// dial waits for the socket to be served.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	wait, cancel := context.WithTimeout(ctx, socketWait)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unix", path)
		switch {
		case err == nil:
			return conn.(*net.UnixConn), nil
		case errors.Is(err, fs.ErrPermission):
			return nil, fmt.Errorf("%s: %w: %w", path, ErrForbidden, err)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EAGAIN):
			return nil, fmt.Errorf("%s: %w: %w", path, ErrNoGuest, err)
		}
		select {
		case <-wait.Done():
			return nil, fmt.Errorf("%s: %w after %v: %w", path, ErrNoGuest, socketWait, err)
		case <-time.After(socketRetry):
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
