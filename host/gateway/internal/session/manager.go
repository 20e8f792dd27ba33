package session

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// startTimeout bounds the first words with the store, at New.
	startTimeout = 30 * time.Second
	// beatTimeout bounds one of the loops' calls to the store: a loop that waits
	// longer is of no use to anybody.
	beatTimeout = 10 * time.Second
)

// Manager keeps sessions. All methods may be called concurrently; whatever they
// return that a client decides on is an *[Error].
type Manager struct {
	config Config
	id     string // this gateway's, in the store
	st     *store.Store
	log    hclog.Logger
	timing Timing

	runtimes map[string]Runtime
	policy   atomic.Pointer[Policy]
	events   eventLog

	// loops end first, then what is being done with sessions.
	loops     sync.WaitGroup
	stopLoops context.CancelFunc
	tasks     sync.WaitGroup
	taskCtx   context.Context //nolint:containedctx // it bounds what outlives its caller
	endTasks  context.CancelFunc

	mu     sync.Mutex
	closed bool
	doing  map[*task]string // session ids
	held   map[string]*held
	runs   map[store.RunKey]*run
	// sweeping are the sessions that a sweep, or a reader, is at.
	sweeping map[string]bool
	sweepers chan struct{} // held by each of a sweep's that works
}

// stopper is a host that can stop a workspace, storedOpener one that reads the
// files of one that does not run; *host.Host is both.
type stopper interface {
	Stop(ctx context.Context, ref workspace.Ref) error
}

type storedOpener interface {
	OpenStored(ctx context.Context, ref workspace.Ref) (workspace.Stored, error)
}

// New makes a manager and starts its loops.
func New(config Config) (*Manager, error) {
	m := &Manager{
		config: config, st: config.Store, log: config.Logger, timing: config.Timing.withDefaults(),
		runtimes: make(map[string]Runtime, len(config.Runtimes)),
		doing:    make(map[*task]string), held: make(map[string]*held), runs: make(map[store.RunKey]*run),
		sweeping: make(map[string]bool), sweepers: make(chan struct{}, maxSweepers),
	}
	if m.log == nil {
		m.log = hclog.NewNullLogger()
	}
	if config.Host == nil || config.Store == nil {
		return nil, errors.New("make a session manager: it needs a host and a store")
	}
	if config.Token == "" {
		return nil, errors.New("make a session manager: it needs the service's token")
	}
	for _, r := range config.Runtimes {
		if _, twice := m.runtimes[r.Alias]; twice || r.Alias == "" || r.Provider == "" {
			return nil, fmt.Errorf("make a session manager: runtime %q: want an alias of its own and a provider", r.Alias)
		}
		m.runtimes[r.Alias] = r
	}
	if err := config.Policy.validate(m.runtimes); err != nil {
		return nil, fmt.Errorf("make a session manager: %w", err)
	}
	var id [8]byte
	rand.Read(id[:])
	m.id = "gw-" + hex.EncodeToString(id[:])
	m.policy.Store(&config.Policy)
	m.events.wake = make(chan struct{}, 1)

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := m.st.Beat(ctx, m.id, nil, m.timing.Lease); err != nil {
		return nil, fmt.Errorf("make a session manager: %w", err)
	}
	if _, err := m.loadPolicy(ctx); err != nil {
		return nil, fmt.Errorf("make a session manager: %w", err)
	}
	m.taskCtx, m.endTasks = context.WithCancel(context.Background())
	var loopCtx context.Context
	loopCtx, m.stopLoops = context.WithCancel(context.Background())
	m.loops.Go(func() { m.loop(loopCtx, m.timing.Renew, m.renew) })
	m.loops.Go(func() { m.loop(loopCtx, m.timing.Sweep, m.sweep) })
	m.loops.Go(func() { m.loop(loopCtx, m.timing.Poll, m.obey) })
	m.loops.Go(func() { m.logEvents(loopCtx) })
	return m, nil
}

// Shutdown waits until ctx ends for what is being opened or closed, and gives back
// what this manager holds in the store. Workspaces live on.
func (m *Manager) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		m.tasks.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("shut down the session manager: %w", ctx.Err())
		m.endTasks()
		<-done
	}
	m.endTasks()
	m.stopLoops() // not before: they renew the leases of what is being done
	m.loops.Wait()
	leaveCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatTimeout)
	defer cancel()
	return errors.Join(err, m.events.flush(leaveCtx, m.st), m.st.Leave(leaveCtx, m.id))
}

// loop does something periodically, each time within the time of a store call.
func (m *Manager) loop(ctx context.Context, period time.Duration, f func(context.Context) error) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		callCtx, cancel := context.WithTimeout(ctx, beatTimeout)
		err := f(callCtx)
		cancel()
		if err != nil && ctx.Err() == nil && !failing { // told once, not every 100 ms
			m.log.Error("the session store does not answer: sessions cannot be kept in order", "error", err)
		}
		failing = err != nil
	}
}

// renew keeps the leases of this manager, and learns the policy that another one
// set.
func (m *Manager) renew(ctx context.Context) error {
	m.mu.Lock()
	ids := make([]string, 0, len(m.doing))
	for _, id := range m.doing {
		ids = append(ids, id)
	}
	m.mu.Unlock()
	_, err := m.loadPolicy(ctx)
	return errors.Join(m.st.Beat(ctx, m.id, ids, m.timing.Lease), m.renewUses(ctx), err)
}

// task is work on a session that goes on when its caller leaves. While it lasts, this
// manager renews its lease of the record.
type task struct{ done chan struct{} }

// do runs a task and waits for it, or until ctx ends; then the error is ctx's.
func do[T any](ctx context.Context, m *Manager, id string, f func(context.Context) (T, error)) (T, error) {
	var result T
	t := &task{done: make(chan struct{})}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return result, errShutdown()
	}
	m.tasks.Add(1)
	m.doing[t] = id
	m.mu.Unlock()
	taskCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(m.taskCtx, cancel) //nolint:contextcheck // it ends with the manager
	var err error
	go func() {
		defer func() {
			unhook()
			cancel()
			m.mu.Lock()
			delete(m.doing, t)
			m.mu.Unlock()
			close(t.done)
			m.tasks.Done()
		}()
		result, err = f(taskCtx)
	}()
	select {
	case <-t.done:
		return result, err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// settleTimeout is how long a task tries to write down what it did. Then its lease
// runs out, and who comes next finds out what is there.
const settleTimeout = time.Minute

// settle writes a change that follows something that cannot be undone, so it tries
// again when the store does not answer.
func (m *Manager) settle(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil || errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrNotFound) {
			return err
		}
		m.log.Warn("a session's record could not be written; trying again", "error", err)
		if !sleep(ctx, time.Second) {
			return err
		}
	}
}

// await waits for a change of a session that somebody is at work in.
func (m *Manager) await(ctx context.Context, id string) error {
	m.mu.Lock()
	var ours *task
	for t, of := range m.doing {
		if of == id {
			ours = t
		}
	}
	m.mu.Unlock()
	timer := time.NewTimer(m.timing.Poll)
	defer timer.Stop()
	var done <-chan struct{}
	if ours != nil {
		done = ours.done
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	case <-timer.C:
	}
	return nil
}

// sleep waits, and reports whether ctx did not end meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
