package serve

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// handsOver is the first byte of a connection whose client hands its input over. No
// HTTP/2 begins with it.
const handsOver = 0

// CanHandOver reports whether a file is a pipe or a socket: what can be waited for
// without a thread, and is nobody's terminal.
func CanHandOver(in *os.File) bool {
	info, err := in.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

// HandOver begins a connection to a guest by giving it the file that what the client
// sends is read from, see [CanHandOver]: the guest reads it, and this process must not.
// What the guest sends comes through conn, and the end of conn is that of the
// connection. Both ends have to be of one version.
func HandOver(conn *net.UnixConn, in *os.File) error {
	raw, err := in.SyscallConn()
	if err != nil {
		return fmt.Errorf("handing over the input: %w", err)
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = conn.WriteMsgUnix([]byte{handsOver}, unix.UnixRights(int(fd)), nil) //nolint:gosec // a descriptor is a small number
	})
	if err := errors.Join(err, sent); err != nil {
		return fmt.Errorf("handing over the input: %w", err)
	}
	return nil
}

// inputs are gRPC's way to exchange a connection for another before it speaks, on a
// goroutine and within a time limit of the connection's own: for one whose client
// hands its input over.
type inputs struct {
	credentials.TransportCredentials
}

func newInputs() credentials.TransportCredentials { return inputs{insecure.NewCredentials()} }

// ServerHandshake takes the input that a client hands over, if it does.
func (i inputs) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c, ok := conn.(*served); ok {
		var err error
		if conn, err = c.takeInput(); err != nil {
			return nil, nil, err
		}
	}
	return i.TransportCredentials.ServerHandshake(conn)
}

// Clone is for gRPC.
func (i inputs) Clone() credentials.TransportCredentials {
	return inputs{i.TransportCredentials.Clone()}
}

// takeInput waits for the first byte.
func (s *served) takeInput() (net.Conn, error) {
	switch first, err := s.peek(); {
	case err != nil:
		return nil, err
	case first != handsOver:
		return s, nil
	}
	var byteRead [1]byte
	rights := make([]byte, unix.CmsgSpace(4)) // of one descriptor; the kernel closes what is more
	_, n, _, _, err := s.ReadMsgUnix(byteRead[:], rights)
	if err != nil {
		return nil, fmt.Errorf("taking an input: %w", err)
	}
	in, err := received(rights[:n])
	if err != nil {
		return nil, fmt.Errorf("taking an input: %w", err)
	}
	h := &handed{served: s, in: in}
	h.finish = sync.OnceValue(func() error { return errors.Join(in.Close(), s.Close()) })
	s.watches.Go(func() { // ends with the connection
		// Nothing more comes here but the end, or the time limit of the first words.
		_, _ = s.Read(byteRead[:])
		_ = h.finish()
	})
	return h, nil
}

// peek waits for the first byte and leaves it.
func (s *served) peek() (byte, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, err
	}
	var first [1]byte
	var n int
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		n, _, peekErr = unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT) //nolint:gosec // a descriptor is a small number
		return !errors.Is(peekErr, unix.EAGAIN) && !errors.Is(peekErr, unix.EINTR)
	})
	if err := errors.Join(err, peekErr); err != nil {
		return 0, fmt.Errorf("waiting for the first byte: %w", err)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return first[0], nil
}

// received is the one file that came with a message, to be read without a thread.
func received(rights []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			err = errors.Join(err, unix.SetNonblock(fd, true)) // before os.NewFile, which looks
			files = append(files, os.NewFile(uintptr(fd), "input"))
		}
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
	}
	switch {
	case len(files) != 1:
		err = fmt.Errorf("%d files came, want one", len(files))
	case !CanHandOver(files[0]):
		err = errors.New("it is neither a pipe nor a socket")
	default:
		return files[0], nil
	}
	return nil, errors.Join(err, closeAll(files))
}

func closeAll(files []*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// handed is a connection whose client has handed its input over.
type handed struct {
	*served

	in     *os.File
	finish func() error
}

// Read reads what the client sends.
func (h *handed) Read(p []byte) (int, error) { return h.in.Read(p) }

// Close ends the connection.
func (h *handed) Close() error { return h.finish() }
