package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// stopWait is how long a stop waits for the end of its run: TERM, then KILL at
	// most 2 s later (contract C5), and a second for the way.
	stopWait = workspace.StopGrace + time.Second
	// maxArgs is how much of a command line a listing tells.
	maxArgs = 4096
)

// RunInfo is a run in a listing.
type RunInfo struct {
	Session, ID string
	Args        []string
	Detached    bool // it goes on when its client goes
	Started     time.Time
	// End is nil while it goes. Ended runs are told for some minutes.
	End *RunEnd
}

// RunEnd is how a run ended.
type RunEnd struct {
	At       time.Time // set by the manager
	ExitCode *int      // nil if it has none
	Detail   string    // such as "exit 0", "timed out", or an error's text
}

// run is one that goes here.
type run struct {
	cancel  func()
	once    sync.Once
	done    chan struct{} // closed when it has ended
	entered bool          // in the store
}

func (r *run) stop() { r.once.Do(r.cancel) }

// RunBegin enters a run that is about to start, so that it is listed and can be
// stopped through any gateway: cancel is called for that, at most once, and must not
// block. done must be called when the run has ended.
func (m *Manager) RunBegin(ctx context.Context, info RunInfo, cancel func()) (done func(RunEnd), err error) {
	key := store.RunKey{Session: info.Session, ID: info.ID}
	r := &run{cancel: cancel, done: make(chan struct{})}
	exists := &Error{Kind: RunExists, Text: fmt.Sprintf("run %s of session %s is going already", info.ID, info.Session)}
	m.mu.Lock()
	if m.runs[key] != nil {
		m.mu.Unlock()
		return nil, exists
	}
	m.runs[key] = r // in this gateway, one of two that come at once
	m.mu.Unlock()
	row := store.Run{Session: info.Session, ID: info.ID, Gateway: m.id, Args: cutArgs(info.Args), Detached: info.Detached}
	if err := m.st.BeginRun(ctx, row); err != nil {
		m.endRun(key, r)
		switch {
		case errors.Is(err, store.ErrExists):
			return nil, exists
		case errors.Is(err, store.ErrChanged):
			return nil, errClosed(info.Session)
		}
		return nil, storeError(err)
	}
	m.mu.Lock()
	r.entered = true
	m.mu.Unlock()
	var once sync.Once
	return func(end RunEnd) {
		once.Do(func() {
			m.endRun(key, r)
			row.ExitCode, row.Detail = end.ExitCode, cut(end.Detail, maxTarget)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatTimeout)
			defer cancel()
			if err := m.st.EndRun(ctx, row); err != nil {
				m.log.Warn("the end of a run could not be written", "session", info.Session, "run", info.ID, "error", err)
			}
		})
	}, nil
}

func (m *Manager) endRun(key store.RunKey, r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[key] == r {
		delete(m.runs, key)
	}
	close(r.done)
}

// localRuns are those that go here.
func (m *Manager) localRuns() map[store.RunKey]*run {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.runs)
}

// obey stops the runs that go here and that somebody wants stopped elsewhere.
func (m *Manager) obey(ctx context.Context) error {
	m.mu.Lock()
	ours := make(map[store.RunKey]*run)
	for key, r := range m.runs {
		if r.entered {
			ours[key] = r
		}
	}
	m.mu.Unlock()
	if len(ours) == 0 {
		return nil
	}
	orders, err := m.st.Orders(ctx, m.id)
	if err != nil {
		return err
	}
	for key, r := range ours {
		why, there := orders[key]
		if there && why == 0 {
			continue
		}
		ended := why != 0
		if why != store.StopAsked { // its session is closed, or its record purged, or it has just ended
			m.mu.Lock()
			h := m.held[key.Session]
			m.mu.Unlock()
			if h != nil {
				other, err := m.endIfOther(ctx, h)
				if err != nil {
					return err
				}
				ended = ended || other
			}
		}
		if ended {
			r.stop()
		}
	}
	return nil
}

// StopRun stops a run, wherever it goes, and waits a moment for its end. One that is
// not known, or has ended, is success.
func (m *Manager) StopRun(ctx context.Context, session, id string) error {
	m.mu.Lock()
	r := m.runs[store.RunKey{Session: session, ID: id}]
	m.mu.Unlock()
	waitCtx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	if r != nil {
		r.stop()
		select {
		case <-r.done:
		case <-waitCtx.Done():
		}
		return ctx.Err()
	}
	asked, err := m.st.StopRun(ctx, session, id, store.StopAsked)
	if err != nil {
		return storeError(err)
	}
	if !asked {
		return nil
	}
	for {
		row, err := m.st.Run(waitCtx, session, id)
		if errors.Is(err, store.ErrNotFound) || err == nil && !row.Ended.IsZero() {
			return nil
		}
		if !sleep(waitCtx, m.timing.Poll) {
			return ctx.Err()
		}
	}
}

// Runs returns the runs of a session, oldest first: those that go, and those that
// ended within the last minutes.
func (m *Manager) Runs(ctx context.Context, session string) ([]RunInfo, error) {
	if _, err := m.Get(ctx, session); err != nil {
		return nil, err
	}
	rows, err := m.st.Runs(ctx, session)
	if err != nil {
		return nil, storeError(err)
	}
	infos := make([]RunInfo, 0, len(rows))
	for _, row := range rows {
		i := RunInfo{Session: row.Session, ID: row.ID, Args: row.Args, Detached: row.Detached, Started: row.Started}
		if !row.Ended.IsZero() {
			i.End = &RunEnd{At: row.Ended, ExitCode: row.ExitCode, Detail: row.Detail}
		}
		infos = append(infos, i)
	}
	return infos, nil
}

// cutArgs is as much of a command line as a listing tells.
func cutArgs(args []string) []string {
	var short []string
	left := maxArgs
	for _, a := range args {
		if left <= 0 {
			return append(short, "…")
		}
		a = cut(a, left)
		left -= len(a)
		short = append(short, a)
	}
	return short
}
