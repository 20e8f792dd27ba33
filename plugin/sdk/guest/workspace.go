package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/internal/relay"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// dialWait is how long a connection may take to be made: an engine starts a
	// process for it.
	dialWait = 30 * time.Second
	// connectTries is how often a connection is made in a row that ends while it is
	// being made: whatever carries it may be killed as any process, and those who
	// wait for it have done nothing yet. connectPause is between two of them.
	connectTries = 3
	connectPause = 50 * time.Millisecond
	// explainWait is how long finding out what a broken connection means may take.
	explainWait = 10 * time.Second
	// DefaultIdleTimeout is [Options.IdleTimeout]'s: long enough that someone who
	// works in a workspace does not wait for a new connection.
	DefaultIdleTimeout = 10 * time.Minute
)

// Options say how to reach a guest.
type Options struct {
	// Dial makes a byte stream to the guest. It is called for the first
	// connection, and whenever a call finds that the last one has ended. Its error
	// is the caller's, after Explain. The context ends with the connection, or
	// when none was made in time.
	Dial func(ctx context.Context) (net.Conn, error)
	// Check, if not nil, is called for each new connection. Its error is the
	// caller's, and ends the connection.
	Check func(ctx context.Context, hello Hello) error
	// Explain says what it means that a connection could not be made, or has
	// ended: an error that wraps [workspace.ErrUnavailable], with the reason, if
	// the workspace has gone. Nil, and one that returns nil, mean
	// [workspace.ErrTransient].
	Explain func(ctx context.Context, err error) error
	// Version is this program's.
	Version string
	// IdleTimeout is how long a connection that nobody uses is kept. Zero is
	// [DefaultIdleTimeout], a negative one for ever.
	IdleTimeout time.Duration
}

// Workspace is a workspace with a guest in it, for a provider's own type to embed.
// All calls share one connection, which is made again when it has ended. Its
// methods may be called concurrently.
type Workspace struct {
	options Options
	alive   context.Context //nolint:containedctx // ends with the workspace, and with it what calls share
	end     context.CancelFunc

	mu       sync.Mutex
	current  *link   // the last connection, or nil
	flight   *flight // the one that is being made
	hello    Hello
	features []workspace.Feature
	registry []byte
	links    map[*link]struct{} // all that are open
	tasks    sync.WaitGroup
}

// link is one connection and those who use it. It is closed when it is retired
// and nobody does.
type link struct {
	client  *Client
	cancel  context.CancelCauseFunc // of the context with which it was made
	uses    int
	retired bool
	idle    *time.Timer
}

// flight is a connection that is being made, for all who wait for it.
type flight struct {
	done    chan struct{}
	cancel  context.CancelCauseFunc
	waiters int
	link    *link // with a use for each waiter that was left
	err     error
}

var (
	_ relay.Target  = (*Workspace)(nil)
	_ sdk.Announcer = (*Workspace)(nil)
)

// Open connects to a guest.
func Open(ctx context.Context, options Options) (*Workspace, error) {
	if options.IdleTimeout == 0 {
		options.IdleTimeout = DefaultIdleTimeout
	}
	w := &Workspace{options: options, links: map[*link]struct{}{}}
	w.alive, w.end = context.WithCancel(context.Background())
	conn, err := w.BerthRelay(ctx)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	conn.Release()
	return w, nil
}

// WorkingDir is where commands start.
func (w *Workspace) WorkingDir() string { return w.Hello().WorkingDir }

// Hello is what the guest said at the last connection.
func (w *Workspace) Hello() Hello {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hello
}

// Announce tells all that the workspace has, as its guest says.
func (w *Workspace) Announce() []workspace.Feature {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.features)
}

// RunRegistry is who notes the workspace's runs, as its guest said at the last
// connection: nil if it is of a version that does not say.
func (w *Workspace) RunRegistry() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.registry
}

// Close ends the connection and all calls on it. Commands that may go on without
// one do.
func (w *Workspace) Close() error {
	w.end()
	w.mu.Lock()
	for l := range w.links {
		w.retire(l)
		w.discard(l)
	}
	w.mu.Unlock()
	w.tasks.Wait()
	return nil
}

// BerthRelay returns the connection for one call.
func (w *Workspace) BerthRelay(ctx context.Context) (*relay.Conn, error) {
	l, err := w.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &relay.Conn{
		Client: l.client.Provider(), Key: l.client.Key(),
		Explain: func(ctx context.Context, err error) error {
			// Whatever has broken it, the next call is better served by a new one.
			w.mu.Lock()
			w.retire(l)
			w.mu.Unlock()
			return w.explain(ctx, err)
		},
		Release: sync.OnceFunc(func() { w.release(l) }),
	}, nil
}

// acquire returns a connection for one use.
func (w *Workspace) acquire(ctx context.Context) (*link, error) { //nolint:contextcheck // the connection outlives any one caller
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	w.mu.Lock()
	if w.alive.Err() != nil {
		w.mu.Unlock()
		return nil, fmt.Errorf("connecting to the guest: its workspace: %w", fs.ErrClosed)
	}
	if l := w.current; l != nil && !l.broken() {
		l.uses++
		if l.idle != nil {
			l.idle.Stop()
			l.idle = nil
		}
		w.mu.Unlock()
		return l, nil
	}
	if w.current != nil {
		w.retire(w.current)
	}
	f := w.flight
	if f == nil {
		// It outlives each of those who wait, and is in the trace of the first.
		flightCtx, cancel := context.WithCancelCause(trace.ContextWithSpan(w.alive, trace.SpanFromContext(ctx)))
		f = &flight{done: make(chan struct{}), cancel: cancel}
		w.flight = f
		w.tasks.Go(func() { w.fly(flightCtx, f) })
	}
	f.waiters++
	w.mu.Unlock()
	select {
	case <-f.done:
		return f.link, f.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.waiters--; f.waiters == 0 && w.flight == f {
		w.flight = nil // whoever asks next begins anew
		f.cancel(context.Cause(ctx))
	}
	select {
	case <-f.done:
		if f.link != nil {
			w.unuse(f.link)
		}
	default:
	}
	return nil, fmt.Errorf("connecting to the guest: %w", context.Cause(ctx))
}

// fly makes a connection.
func (w *Workspace) fly(ctx context.Context, f *flight) {
	late := time.AfterFunc(dialWait, func() { f.cancel(fmt.Errorf("no connection in %v", dialWait)) })
	client, err := safely("connecting to the guest", func() (*Client, error) { return w.connect(ctx) })
	if !late.Stop() && err == nil { // what was made may hang on the context
		err = errors.Join(context.Cause(ctx), client.Close())
	}
	if err != nil {
		err = w.failed(ctx, err)
		f.cancel(nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer close(f.done)
	if w.flight == f {
		w.flight = nil
	}
	if err != nil {
		f.err = err
		return
	}
	l := &link{client: client, cancel: f.cancel, uses: f.waiters}
	w.links[l] = struct{}{}
	if f.waiters == 0 || w.alive.Err() != nil {
		f.err = fmt.Errorf("connecting to the guest: its workspace: %w", fs.ErrClosed)
		w.retire(l)
		w.discard(l)
		return
	}
	f.link = l
	w.current, w.hello, w.features, w.registry = l, client.Hello(), client.Features(), client.RunRegistry()
}

// connect makes a connection, again if it breaks at once.
func (w *Workspace) connect(ctx context.Context) (client *Client, err error) {
	for try := 1; ; try++ {
		if client, err = w.connectOnce(ctx); !errors.Is(err, ErrBroken) || try == connectTries {
			return client, err
		}
		select {
		case <-time.After(connectPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (w *Workspace) connectOnce(ctx context.Context) (*Client, error) {
	conn, err := w.options.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the guest: %w", err)
	}
	client, err := Connect(ctx, conn, w.options.Version)
	if err != nil {
		return nil, err
	}
	if w.options.Check != nil {
		if err := w.options.Check(ctx, client.Hello()); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	return client, nil
}

// failed says what it means that no connection was made.
func (w *Workspace) failed(ctx context.Context, err error) error {
	var protocol *ProtocolError
	switch {
	case w.alive.Err() != nil: // nobody asks
		return err
	case errors.As(err, &protocol), errors.Is(err, workspace.ErrUnavailable), errors.Is(err, workspace.ErrTransient):
		return err
	case ctx.Err() != nil && context.Cause(ctx) != nil:
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return w.explain(context.WithoutCancel(ctx), err)
}

// explain says what an error of the connection means.
func (w *Workspace) explain(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, explainWait)
	defer cancel()
	var explained error
	if w.options.Explain != nil {
		var panicked error
		explained, panicked = safely("explaining a broken connection", func() (error, error) { return w.options.Explain(ctx, err), nil })
		if panicked != nil {
			explained = fmt.Errorf("%w: %w", panicked, workspace.ErrTransient)
		}
	}
	if explained == nil {
		return fmt.Errorf("%w: %w", err, workspace.ErrTransient)
	}
	return explained
}

// safely makes a panic of the provider's an error of the call: it happens on no
// call's own goroutine.
func safely[T any](what string, fn func() (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic in the provider: %v\n%s", what, p, debug.Stack())
		}
	}()
	return fn()
}

// The following must be called with the lock held.

// unuse ends one use.
func (w *Workspace) unuse(l *link) {
	l.uses--
	switch {
	case l.uses > 0:
	case l.retired:
		w.discard(l)
	case w.options.IdleTimeout > 0:
		var timer *time.Timer
		timer = time.AfterFunc(w.options.IdleTimeout, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if l.idle == timer && l.uses == 0 {
				w.retire(l)
			}
		})
		l.idle = timer
	}
}

// retire has a link used by no further call.
func (w *Workspace) retire(l *link) {
	if w.current == l {
		w.current = nil
	}
	if l.retired {
		return
	}
	l.retired = true
	if l.idle != nil {
		l.idle.Stop()
		l.idle = nil
	}
	if l.uses == 0 {
		w.discard(l)
	}
}

// discard closes a link, once. That waits for gRPC's own goroutines, so not here.
func (w *Workspace) discard(l *link) {
	if _, open := w.links[l]; !open {
		return
	}
	delete(w.links, l)
	w.tasks.Go(func() {
		_ = l.client.Close()
		l.cancel(nil)
	})
}

func (w *Workspace) release(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unuse(l)
}

func (l *link) broken() bool {
	select {
	case <-l.client.Broken():
		return true
	default:
		return l.retired
	}
}
