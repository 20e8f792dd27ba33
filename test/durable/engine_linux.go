package durable

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/guest/serve"
)

// Engine runs guests in this process, whose TestMain calls posix.Main first.
type Engine struct {
	root   string // of the folders
	dir    string // of the sockets: short
	socket string
	ctx    context.Context //nolint:containedctx // of the guests, which last as long as the engine
	work   sync.WaitGroup

	mu     sync.Mutex
	guests map[string]*guestProcess
	made   int
}

// guestProcess is one guest, by the name of what it would be elsewhere.
type guestProcess struct {
	socket string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// StartEngine starts an engine whose workspaces are in root. It ends with t.
func StartEngine(t testing.TB, root string) *Engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "e") //nolint:usetesting // the path of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	e := &Engine{root: root, dir: dir, ctx: ctx, socket: filepath.Join(dir, "engine"), guests: map[string]*guestProcess{}}
	listener, err := net.Listen("unix", e.socket)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	e.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.work.Go(func() { e.answer(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		e.work.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return e
}

// Config is a provider's configuration that leads here.
func (e *Engine) Config() map[string]any { return map[string]any{"root": e.root, "engine": e.socket} }

func (e *Engine) answer(conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	what, key, _ := strings.Cut(strings.TrimSpace(line), " ")
	var answer string
	switch what {
	case "start":
		answer, err = e.start(key)
	case "stop":
		err = e.Stop(key)
	default:
		err = fmt.Errorf("unknown order %q", what)
	}
	if err != nil {
		_, _ = fmt.Fprintf(conn, "error %v", err) // to who may be gone
		return
	}
	_, _ = fmt.Fprintf(conn, "ok %s", answer)
}

const (
	// guestWait is how long a guest may take to serve its socket, on a machine
	// that does much else.
	guestWait = 30 * time.Second
	guestPoll = time.Millisecond
)

func (e *Engine) start(key string) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.guests[key]; g != nil {
		return g.socket, nil
	}
	ctx, cancel := context.WithCancel(e.ctx)
	e.made++
	g := &guestProcess{socket: filepath.Join(e.dir, strconv.Itoa(e.made), "s"), cancel: cancel, done: make(chan struct{})}
	dir := filepath.Join(e.root, key)
	e.work.Go(func() {
		defer close(g.done)
		g.err = serve.Run(ctx, serve.Config{
			Dir: dir, Socket: g.socket, Version: "test",
			Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": dir, "LANG": "C.UTF-8"},
		})
	})
	for deadline := time.Now().Add(guestWait); ; time.Sleep(guestPoll) {
		// That it is there does not say that it listens yet.
		if conn, err := net.Dial("unix", g.socket); err == nil {
			_ = conn.Close()
			e.guests[key] = g
			return g.socket, nil
		}
		select {
		case <-g.done:
			cancel()
			return "", g.err
		default:
		}
		if time.Now().After(deadline) {
			cancel()
			return "", errors.New("the guest does not serve its socket")
		}
	}
}

// Stop ends the guest of a workspace, as a container's end would. Attaching to the
// workspace starts another.
func (e *Engine) Stop(key string) error {
	e.mu.Lock()
	g := e.guests[key]
	delete(e.guests, key)
	e.mu.Unlock()
	if g == nil {
		return nil
	}
	g.cancel()
	<-g.done
	return g.err
}
