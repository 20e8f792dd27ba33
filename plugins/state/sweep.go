package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// timing is how a sweeper goes about its work.
type timing struct {
	// interval is between two sweeps, unless there is reason for one at once.
	interval time.Duration
	// missed is after how many of our intervals without a sign of life another
	// session is taken for dead. They are counted rather than measured, so that
	// a machine that slept finds nobody dead.
	missed int
}

// defaultTiming gives back the space of a crashed process after a minute, which
// no living one lets pass without a sign.
var defaultTiming = timing{interval: 5 * time.Second, missed: 12}

const (
	// sweepEntries is how many entries of a removed tree one transaction takes:
	// some ten milliseconds, for which other writers wait.
	sweepEntries = 128
	// sweepPieces is the same of the pieces of a content.
	sweepPieces = 32
	// sweepPage is how much garbage is listed at a time.
	sweepPage = 64
	// closeTimeout bounds the farewell to the store: what is not done then is
	// done by another session, later.
	closeTimeout = 5 * time.Second
)

// sweeper reclaims what nobody can reach any more, in short transactions. It
// also tells the other processes which use the store what this one still
// reads and stages, though only while there is something that they could take.
type sweeper struct {
	store   store
	log     hclog.Logger
	timing  timing
	session string
	kicks   chan struct{}
	cancel  context.CancelFunc
	ended   chan struct{}
	close   func() error

	mu      sync.Mutex
	leases  map[*lease]struct{}
	writers map[*writer]struct{} // those that have staged something

	others map[string]*other // of the sweeping goroutine alone
}

// lease is a reader that reads on after its transaction.
type lease struct {
	// ctx is the reader's: when it ends, so does the lease.
	ctx context.Context //nolint:containedctx // it lasts as long as the reader
	// seq is the last garbage at the time of its transaction: what became
	// garbage later may be what it reads. Until then it is zero.
	seq int64
}

// other is what is known of another session.
type other struct {
	seen   time.Time
	missed int
}

func startSweeper(ctx context.Context, st store, log hclog.Logger, timing timing) (*sweeper, error) {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	s := &sweeper{
		store: st, log: log, timing: timing, session: rand.Text(),
		kicks: make(chan struct{}, 1), ended: make(chan struct{}),
		leases: map[*lease]struct{}{}, writers: map[*writer]struct{}{}, others: map[string]*other{},
	}
	// From here on other processes know of this one.
	err := st.update(ctx, lazy, func(t tx) error {
		last, err := t.lastGarbage()
		if err != nil {
			return err
		}
		return t.putSession(session{id: s.session, seen: time.Now(), safe: last})
	})
	if err != nil {
		return nil, fmt.Errorf("announce this process to the store: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.close = sync.OnceValue(s.shut)
	go s.run(run)
	return s, nil
}

func (s *sweeper) run(ctx context.Context) {
	defer close(s.ended)
	ticker := time.NewTicker(s.timing.interval)
	defer ticker.Stop()
	for {
		tick := false
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			tick = true
		case <-s.kicks:
		}
		if err := s.sweep(ctx, tick); err != nil && ctx.Err() == nil {
			s.log.Warn("the store could not be swept and will be later", "store", s.store, "error", err)
		}
	}
}

// shut ends the goroutine, aborts what is still being written and takes leave.
func (s *sweeper) shut() error {
	s.cancel()
	<-s.ended
	for _, w := range s.openWriters() {
		w.giveUp(fmt.Errorf("store %s: %w", s.store, fs.ErrClosed))
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.store.update(ctx, lazy, func(t tx) error { return t.deleteSession(s.session) })
}

// kick asks for a sweep at once.
func (s *sweeper) kick() {
	select {
	case s.kicks <- struct{}{}:
	default:
	}
}

// lease registers a reader before its transaction begins. Until hold says what
// it saw, nothing is reclaimed at all.
func (s *sweeper) lease(ctx context.Context) *lease {
	l := &lease{ctx: ctx}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[l] = struct{}{}
	return l
}

func (s *sweeper) hold(l *lease, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.seq = seq
}

func (s *sweeper) release(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
}

// watch keeps a writer until what it staged is published or dropped.
func (s *sweeper) watch(w *writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers[w] = struct{}{}
}

func (s *sweeper) unwatch(w *writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writers, w)
}

func (s *sweeper) openWriters() []*writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*writer, 0, len(s.writers))
	for w := range s.writers {
		list = append(list, w)
	}
	return list
}

// safe is up to where garbage has no reader in this process.
func (s *sweeper) safe(last int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.leases {
		if l.ctx.Err() != nil {
			delete(s.leases, l)
			continue
		}
		last = min(last, l.seq)
	}
	return last
}

// sweep reclaims all that can be.
func (s *sweeper) sweep(ctx context.Context, tick bool) error {
	for _, w := range s.openWriters() {
		w.expire() //nolint:contextcheck // it has its own
	}
	for {
		idle, err := s.idle(ctx)
		if err != nil || idle {
			return err
		}
		horizon, err := s.beat(ctx, tick)
		if err != nil {
			return err
		}
		again, err := s.pass(ctx, horizon)
		if err != nil || !again {
			return err
		}
		tick = false
	}
}

// idle reports whether there is nothing to reclaim, nor anything that others
// might: then no session shows life, and none is missed.
func (s *sweeper) idle(ctx context.Context) (idle bool, err error) {
	err = s.store.view(ctx, func(t tx) error {
		list, err := t.garbage(0, 1)
		if err != nil || len(list) > 0 {
			return err
		}
		uploads, err := t.staged()
		idle = err == nil && len(uploads) == 0
		return err
	})
	if idle {
		clear(s.others)
	}
	return idle, err
}

// beat shows life, buries the dead, and returns up to which sequence number
// contents have no reader anywhere.
func (s *sweeper) beat(ctx context.Context, tick bool) (horizon int64, err error) {
	err = s.store.update(ctx, lazy, func(t tx) error {
		last, err := t.lastGarbage()
		if err != nil {
			return err
		}
		horizon = s.safe(last)
		if err := t.putSession(session{id: s.session, seen: time.Now(), safe: horizon}); err != nil {
			return err
		}
		all, err := t.sessions()
		if err != nil {
			return err
		}
		live := map[string]bool{}
		for _, o := range all {
			if o.id != s.session && s.dead(o, tick) {
				if err := t.deleteSession(o.id); err != nil {
					return err
				}
				continue
			}
			live[o.id] = true
			horizon = min(horizon, o.safe)
		}
		return bury(t, live)
	})
	return horizon, err
}

// dead notes whether another session has shown life since the last tick.
func (s *sweeper) dead(o session, tick bool) bool {
	known, ok := s.others[o.id]
	if !ok || !known.seen.Equal(o.seen) {
		s.others[o.id] = &other{seen: o.seen}
		return false
	}
	if tick {
		known.missed++
	}
	return known.missed >= s.timing.missed
}

// bury makes garbage of what sessions staged that live no longer.
func bury(t tx, live map[string]bool) error {
	uploads, err := t.staged()
	if err != nil {
		return err
	}
	for _, u := range uploads {
		if live[u.session] {
			continue
		}
		if _, err := t.unstage(u.content); err != nil {
			return err
		}
		if err := t.addGarbage(&garbage{workspace: u.workspace, content: u.content}); err != nil {
			return err
		}
	}
	return nil
}

// pass goes over all garbage once. It reports whether trees were among it,
// which may have left more.
func (s *sweeper) pass(ctx context.Context, horizon int64) (again bool, err error) {
	for after := int64(0); ; {
		var page []garbage
		err := s.store.view(ctx, func(t tx) (err error) {
			page, err = t.garbage(after, sweepPage)
			return err
		})
		if err != nil || len(page) == 0 {
			return again, err
		}
		for _, g := range page {
			after = g.seq
			step := sweepTree
			switch {
			case g.tree != 0:
				again = true
			case g.seq <= horizon:
				step = sweepContent
			default:
				continue
			}
			if err := s.repeat(ctx, g.seq, step); err != nil {
				return false, err
			}
		}
	}
}

// repeat takes steps, a transaction each, until one says that it was the last.
func (s *sweeper) repeat(ctx context.Context, seq int64, step func(tx, garbage) (bool, error)) error {
	for done := false; !done; {
		err := s.store.update(ctx, lazy, func(t tx) error {
			list, err := t.garbage(seq-1, 1)
			if err != nil {
				return err
			}
			if len(list) == 0 || list[0].seq != seq { // another session was faster
				done = true
				return nil
			}
			if done, err = step(t, list[0]); err != nil || !done {
				return err
			}
			return t.deleteGarbage(seq)
		})
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}

func sweepContent(t tx, g garbage) (done bool, err error) {
	return t.deleteData(g.content, sweepPieces)
}

// sweepTree takes entries out of a directory. Directories among them become
// garbage of their own.
func sweepTree(t tx, g garbage) (done bool, err error) {
	entries, err := t.children(g.tree, "", sweepEntries)
	if err != nil {
		return false, err
	}
	for _, n := range entries {
		if err := sweepEntry(t, g, n); err != nil {
			return false, err
		}
	}
	if len(entries) == sweepEntries {
		return false, nil
	}
	return true, t.deleteNode(g.tree)
}

func sweepEntry(t tx, g garbage, n node) error {
	if n.kind == kindDir {
		below, err := t.children(n.id, "", 1)
		if err != nil {
			return err
		}
		if len(below) > 0 {
			child := garbage{workspace: g.workspace, tree: n.id, settled: g.settled}
			if err := t.addGarbage(&child); err != nil {
				return err
			}
			n.parent, n.name = trashParent, trashName(child.seq)
			return t.updateNode(n)
		}
	}
	if err := t.deleteNode(n.id); err != nil {
		return err
	}
	if g.settled { // discardContent would count it a second time
		if err := t.addUsed(g.workspace, n.size); err != nil {
			return err
		}
	}
	_, err := discardContent(t, g.workspace, n)
	return err
}
