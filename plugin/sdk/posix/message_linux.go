package posix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// kind says what a message between this process and its helpers means.
type kind byte

const (
	// From every helper, once it has all that it needs. Before this it has read
	// nothing, and started nothing.
	kindReady kind = iota + 1
	// To a supervisor.
	kindStart   // args, env, text: directory, num: 1 with stdin; descriptors
	kindSignal  // num: the signal
	kindStop    // num: grace in nanoseconds
	kindRelease // num: bits of the streams that somebody still holds
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
	// headSize is that of the number of bytes that follow.
	headSize = 4
	// maxMessage is far more than execve takes.
	maxMessage = 64 << 20
	// maxFDs is the most descriptors in one message.
	maxFDs = 8
)

// encode puts a message into bytes, after their number. Its descriptors travel
// beside them.
func encode(m message) ([]byte, error) {
	buf := make([]byte, headSize, 64)
	buf = append(buf, byte(m.kind))
	buf = binary.AppendVarint(buf, m.num)
	buf = appendString(buf, m.text)
	buf = appendStrings(buf, m.args)
	buf = appendStrings(buf, m.env)
	if len(buf)-headSize > maxMessage {
		return nil, unix.E2BIG
	}
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)-headSize)) //nolint:gosec // below maxMessage
	return buf, nil
}

// bodySize is how many bytes follow a head.
func bodySize(head []byte) (int, error) {
	size := binary.LittleEndian.Uint32(head)
	if size > maxMessage {
		return 0, fmt.Errorf("a message of %d bytes", size)
	}
	return int(size), nil
}

// decode reads what follows a head.
func decode(body []byte) (message, error) {
	d := decoder{buf: body}
	m := message{kind: kind(d.byte()), num: d.varint(), text: d.string(), args: d.strings(), env: d.strings()}
	return m, d.err
}

// sendSome sends some of a message on a socket that does not wait.
func sendSome(fd int, buf, rights []byte) (int, error) {
	return unix.SendmsgN(fd, buf, rights, nil, unix.MSG_NOSIGNAL)
}

// receiveSome receives at most p from a socket that does not wait, and adds the
// descriptors that came with it; io.EOF when the other side has hung up.
func receiveSome(fd int, p []byte, fds *[]int) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	n, oobn, _, _, err := unix.Recvmsg(fd, p, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	if oobn > 0 {
		got, err := parseRights(oob[:oobn])
		*fds = append(*fds, got...)
		if err != nil {
			return 0, err
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// retry reports whether a call on a non-blocking descriptor is to be made again
// when that is ready.
func retry(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

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
