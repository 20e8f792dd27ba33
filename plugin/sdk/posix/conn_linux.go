package posix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// kind says what a message between this process and its helpers means.
type kind byte

const (
	// To a supervisor.
	kindStart   kind = iota + 1 // args, env, text: directory, num: 1 with stdin; descriptors
	kindSignal                  // num: the signal
	kindStop                    // num: grace in nanoseconds
	kindRelease                 // num: bits of the streams that somebody still holds
	// From a supervisor.
	kindStarted  // the command runs, or kindExited follows at once
	kindRefused  // nothing was started. num: errno, text: what was being done
	kindExited   // num: the exit code
	kindSignaled // num: errno, 0 for success
	kindStopped  // text: survivors
	kindFree     // ready for the next command
	// To the keeper, and its answers.
	kindSpawn   // a descriptor: the new supervisor's socket
	kindSpawned // num: pid, or -errno
	kindSweep   // num: a killed supervisor; stop what it left
	kindSwept   // text: survivors
)

// Bits of kindRelease.
const (
	heldStdout = 1 << iota
	heldStderr
)

// message is what is sent, all in one shape: there are few, and they are small
// but for a command's arguments.
type message struct {
	kind      kind
	num       int64
	text      string
	args, env []string
	fds       []int
}

const (
	// maxMessage is far more than execve takes.
	maxMessage = 64 << 20
	// maxFDs is the most descriptors in one message.
	maxFDs = 8
)

// conn carries messages and descriptors over a unix stream socket.
type conn struct {
	file *os.File
	raw  syscall.RawConn
	mu   sync.Mutex // one message at a time
}

// newConn takes over a socket, which it makes non-blocking so that waiting for
// it costs no thread and ends when it is closed.
func newConn(fd int) (*conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "supervisor socket")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &conn{file: file, raw: raw}, nil
}

// socketPair returns our end and the other process's.
func socketPair() (*conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, err := newConn(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "supervisor socket")
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

func (c *conn) close() error { return c.file.Close() }

// alive reports whether the other side has not hung up, as far as is known now.
func (c *conn) alive() bool {
	alive := false
	_ = c.raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // a descriptor
		_, err := unix.Poll(poll, 0)
		alive = err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) == 0
	})
	return alive
}

func (c *conn) send(m message) error {
	buf := make([]byte, 4, 64)
	buf = append(buf, byte(m.kind))
	buf = binary.AppendVarint(buf, m.num)
	buf = appendString(buf, m.text)
	buf = appendStrings(buf, m.args)
	buf = appendStrings(buf, m.env)
	if len(buf)-4 > maxMessage {
		return unix.E2BIG
	}
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)-4)) //nolint:gosec // below maxMessage

	var rights []byte
	if len(m.fds) > 0 {
		rights = unix.UnixRights(m.fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(buf) > 0 {
		var n int
		var err error
		waitErr := c.raw.Write(func(fd uintptr) bool {
			n, err = unix.SendmsgN(int(fd), buf, rights, nil, unix.MSG_NOSIGNAL)
			return !retry(err)
		})
		if err = errors.Join(waitErr, err); err != nil {
			return err
		}
		buf, rights = buf[n:], nil
	}
	return nil
}

// retry reports whether a call on a non-blocking descriptor is to be made again
// when that is ready.
func retry(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

// receive returns the next message; io.EOF when the other side has hung up.
func (c *conn) receive() (m message, err error) {
	defer func() {
		if err != nil {
			closeAll(m.fds)
			m = message{}
		}
	}()
	var head [4]byte
	if err := c.readFull(head[:], &m.fds); err != nil {
		return m, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxMessage {
		return m, fmt.Errorf("a message of %d bytes", size)
	}
	body := make([]byte, size)
	if err := c.readFull(body, &m.fds); err != nil {
		return m, err
	}
	d := decoder{buf: body}
	m.kind = kind(d.byte())
	m.num = d.varint()
	m.text = d.string()
	m.args = d.strings()
	m.env = d.strings()
	return m, d.err
}

// readFull reads just p, so that descriptors stay with their message.
func (c *conn) readFull(p []byte, fds *[]int) error {
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	for len(p) > 0 {
		var n, oobn int
		var err error
		waitErr := c.raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, err = unix.Recvmsg(int(fd), p, oob, unix.MSG_CMSG_CLOEXEC)
			return !retry(err)
		})
		if err := errors.Join(waitErr, err); err != nil {
			return err
		}
		if oobn > 0 {
			got, err := parseRights(oob[:oobn])
			*fds = append(*fds, got...)
			if err != nil {
				return err
			}
		}
		if n == 0 {
			return io.EOF
		}
		p = p[n:]
	}
	return nil
}

func parseRights(oob []byte) ([]int, error) {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, control := range controls {
		fds, err := unix.ParseUnixRights(&control)
		if err != nil {
			return all, err
		}
		all = append(all, fds...)
	}
	return all, nil
}

func appendString(buf []byte, s string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s)))
	return append(buf, s...)
}

func appendStrings(buf []byte, list []string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(list)))
	for _, s := range list {
		buf = appendString(buf, s)
	}
	return buf
}

// decoder reads what was appended; its first error sticks.
type decoder struct {
	buf []byte
	err error
}

func (d *decoder) fail() {
	d.buf = nil
	if d.err == nil {
		d.err = io.ErrUnexpectedEOF
	}
}

func (d *decoder) byte() byte {
	if len(d.buf) == 0 {
		d.fail()
		return 0
	}
	b := d.buf[0]
	d.buf = d.buf[1:]
	return b
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.buf)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.buf = d.buf[n:]
	return v
}

func (d *decoder) length() int {
	v, n := binary.Uvarint(d.buf)
	if n <= 0 || v > uint64(len(d.buf)-n) {
		d.fail()
		return 0
	}
	d.buf = d.buf[n:]
	return int(v) //nolint:gosec // at most the buffer's length
}

func (d *decoder) string() string {
	n := d.length()
	s := string(d.buf[:n])
	d.buf = d.buf[n:]
	return s
}

func (d *decoder) strings() []string {
	n := d.length() // each has at least one byte
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.string()
	}
	return list
}

// messages receives until the other side hangs up, which closes the channel.
func (c *conn) messages() <-chan message {
	all := make(chan message)
	go func() {
		defer close(all)
		for {
			m, err := c.receive()
			if err != nil {
				return
			}
			all <- m
		}
	}()
	return all
}
