//go:build unix

package posix

import (
	"io"
	"os"
)

// streams are this side's ends of a command's pipes.
type streams struct {
	stdin          *os.File // nil without
	stdout, stderr *output
}

// Stdin is nil unless asked for.
func (s *streams) Stdin() io.WriteCloser {
	if s.stdin == nil {
		return nil
	}
	return s.stdin
}

// Stdout ends when the command is done (contract C8).
func (s *streams) Stdout() io.Reader { return s.stdout }

// Stderr ends when the command is done.
func (s *streams) Stderr() io.Reader { return s.stderr }

// abandon closes all that is open.
func (s *streams) abandon() {
	if s.stdin != nil {
		_ = s.stdin.Close()
	}
	for _, o := range []*output{s.stdout, s.stderr} {
		if o != nil {
			o.discard()
		}
	}
}
