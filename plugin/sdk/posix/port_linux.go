package posix

import (
	"errors"

	"golang.org/x/sys/unix"
)

// port is a helper's end of its socket: a [conn] without goroutines, since each of
// these may need a thread.
type port struct {
	fd   int
	head [headSize]byte
	body []byte // nil until the head is complete
	got  int    // bytes of the head, or of the body
	fds  []int
}

func newPort(fd int) (*port, error) { return &port{fd: fd}, unix.SetNonblock(fd, true) }

// receive returns the next message if all of it has come; io.EOF when the owner
// has hung up.
func (p *port) receive() (m message, complete bool, err error) {
	for {
		into := p.body
		if into == nil {
			into = p.head[:]
		}
		into = into[p.got:]
		if len(into) > 0 { // just these, so that descriptors stay with their message
			n, err := receiveSome(p.fd, into, &p.fds)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN):
				return m, false, nil
			case err != nil:
				return m, false, err
			}
			if p.got += n; n < len(into) {
				continue
			}
		}
		p.got = 0
		if p.body == nil {
			size, err := bodySize(p.head[:])
			if err != nil {
				return m, false, err
			}
			p.body = make([]byte, size)
			continue
		}
		m, err = decode(p.body)
		m.fds = p.fds
		p.body, p.fds = nil, nil
		return m, err == nil, err
	}
}

// send tells the owner. That it has gone is learnt from receiving.
func (p *port) send(m message) {
	buf, err := encode(m)
	for err == nil && len(buf) > 0 {
		var n int
		if n, err = sendSome(p.fd, buf, nil); retry(err) {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLOUT}}, -1) //nolint:gosec // a descriptor
			if errors.Is(err, unix.EINTR) {
				err = nil
			}
			continue
		}
		buf = buf[max(n, 0):]
	}
}

// children tells through a descriptor that can be polled when a child may have
// changed. Go's way to catch SIGCHLD takes three threads, this one: a call that
// waits for any child.
type children struct {
	fd      int // an event, there when a child has changed
	options int // of waitid
	watched bool
	watch   chan struct{}
}

func newChildren(options int) (*children, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	c := &children{fd: fd, options: options | unix.WNOWAIT, watch: make(chan struct{}, 1)}
	go c.wait() // as long as this process
	return c, nil
}

// start waits for the next change, if that is not being done already.
func (c *children) start() {
	if !c.watched {
		c.watched = true
		c.watch <- struct{}{}
	}
}

// changed takes the event.
func (c *children) changed() {
	var event [8]byte
	if n, _ := unix.Read(c.fd, event[:]); n > 0 {
		c.watched = false
	}
}

func (c *children) wait() {
	one := [8]byte{1}
	for range c.watch {
		for errors.Is(unix.Waitid(unix.P_ALL, 0, nil, c.options, nil), unix.EINTR) {
		}
		_, _ = unix.Write(c.fd, one[:])
	}
}
