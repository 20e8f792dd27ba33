//go:build docker

package docker_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/docker/enginetest"
)

// proxy stands before the engine, and can be as slow, as silent and as absent as
// engines are.
type proxy struct {
	path    string
	network string
	engine  string
	wait    sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	delay    time.Duration // before each create of a container
	silent   bool
}

// newProxy serves until the end of the test.
func newProxy(t *testing.T) *proxy {
	t.Helper()
	host, err := url.Parse(enginetest.Client(t).DaemonHost())
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{path: filepath.Join(t.TempDir(), "engine.sock"), network: host.Scheme, engine: host.Host + host.Path, conns: map[net.Conn]struct{}{}}
	p.start(t)
	t.Cleanup(func() {
		p.cut()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) address() string { return "unix://" + p.path }

func (p *proxy) start(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.listener = listener
	p.mu.Unlock()
	p.wait.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			p.wait.Go(func() { p.serve(from) })
		}
	})
}

// cut ends the engine, as far as those behind the proxy can see.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for c := range p.conns {
		_ = c.Close()
	}
}

// slow delays every create of a container until the test ends.
func (p *proxy) slow(t testing.TB, d time.Duration) {
	set := func(d time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.delay = d
	}
	set(d)
	t.Cleanup(func() { set(0) })
}

// wedge has the engine accept and never answer, from the next request on.
func (p *proxy) wedge(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

func (p *proxy) serve(from net.Conn) {
	to, err := net.Dial(p.network, p.engine)
	if err != nil {
		_ = from.Close()
		return
	}
	p.mu.Lock()
	p.conns[from], p.conns[to] = struct{}{}, struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(to, from, p.request) })
	both.Go(func() { p.copy(from, to, func([]byte) bool { return true }) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, from)
	delete(p.conns, to)
	p.mu.Unlock()
	_ = from.Close()
	_ = to.Close()
}

// request looks at what a client sends, and says whether it is handed on.
func (p *proxy) request(chunk []byte) bool {
	p.mu.Lock()
	delay, silent := p.delay, p.silent
	p.mu.Unlock()
	if bytes.Contains(chunk, []byte("/containers/create")) && delay > 0 {
		time.Sleep(delay)
	}
	return !silent
}

func (p *proxy) copy(to, from net.Conn, pass func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && pass(buffer[:n]) {
			if _, err := to.Write(buffer[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				if half, ok := to.(interface{ CloseWrite() error }); ok {
					_ = half.CloseWrite()
				}
				return
			}
			_ = to.Close()
			return
		}
	}
}
