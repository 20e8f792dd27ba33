package posix

import "golang.org/x/sys/unix"

// drains read pipes to their end and drop what they read.
type drains struct {
	pipes []int
	buf   []byte
}

// add takes a pipe over, which does not wait, as its maker has made it.
func (d *drains) add(pipe int) {
	d.pipes = append(d.pipes, pipe)
	if d.buf == nil {
		d.buf = make([]byte, 64<<10) // what a pipe holds
	}
}

// poll adds the pipes to a list of what is waited for.
func (d *drains) poll(list []unix.PollFd) []unix.PollFd {
	for _, pipe := range d.pipes {
		list = append(list, pollIn(pipe))
	}
	return list
}

// read reads once from those that have something, or their end.
func (d *drains) read(list []unix.PollFd) {
	open := d.pipes[:0]
	for i, pipe := range d.pipes {
		if list[i].Revents != 0 {
			n, err := unix.Read(pipe, d.buf)
			if n == 0 || err != nil && !retry(err) {
				_ = unix.Close(pipe)
				continue
			}
		}
		open = append(open, pipe)
	}
	d.pipes = open
}
