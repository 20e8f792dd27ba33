package guest

import (
	"net"
	"sync"
)

// stream is the one byte stream of a client. gRPC closes it when it can no longer
// be used, which is how its end is noticed.
type stream struct {
	net.Conn

	closed chan struct{}
	close  func() error

	mu    sync.Mutex
	taken bool
}

func newStream(conn net.Conn) *stream {
	s := &stream{Conn: conn, closed: make(chan struct{})}
	s.close = sync.OnceValue(func() error {
		close(s.closed) // first: the end of the other side may take its time
		return conn.Close()
	})
	return s
}

// take gives the stream to gRPC, once: another try to connect has none.
func (s *stream) take() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		return nil, ErrBroken
	}
	s.taken = true
	return s, nil
}

// Close ends the stream.
func (s *stream) Close() error { return s.close() }

// broken reports whether the stream has ended.
func (s *stream) broken() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}
