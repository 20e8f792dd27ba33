package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"
)

// Run is one run of a session.
type Run struct {
	Session, ID string
	Gateway     string // that runs it
	Args        []string
	Detached    bool
	Started     time.Time
	Ended       time.Time // zero while it goes
	ExitCode    *int
	Detail      string
}

// Why a run is to end.
const (
	StopAsked  = 1 // a client wants it
	StopClosed = 2 // its session is closed or purged
)

// BeginRun enters a run of a running session; one that is not running is
// [ErrChanged]. A run of that id that goes on a living gateway is [ErrExists];
// one that has ended is replaced.
func (s *Store) BeginRun(ctx context.Context, r Run) error {
	args, err := json.Marshal(r.Args)
	if err != nil {
		return err
	}
	return s.change(ctx, s.lazy, "enter run "+r.ID+" of session "+r.Session, func(q querier) error {
		// Who closes the session waits for this row to be there, and then marks it.
		var state string
		err := q.QueryRowContext(ctx, s.dialect.sql("SELECT state FROM berth_sessions WHERE id = $1 AND state = 'running' {share}"), r.Session).Scan(&state)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrChanged
		}
		if err != nil {
			return err
		}
		result, err := q.ExecContext(ctx, s.dialect.sql(`INSERT INTO berth_runs (session, id, gateway, args, detached, started_at, ended_at, exit_code, detail, stop)
			VALUES ($1, $2, $3, $4, $5, {now}, 0, NULL, '', 0)
			ON CONFLICT (session, id) DO UPDATE SET gateway = $3, args = $4, detached = $5, started_at = {now}, ended_at = 0, exit_code = NULL, detail = '', stop = 0
			WHERE berth_runs.ended_at > 0 OR NOT EXISTS (SELECT 1 FROM berth_gateways g WHERE g.id = berth_runs.gateway AND g.lease_until > {now})`),
			r.Session, r.ID, r.Gateway, string(args), number(r.Detached))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, ErrExists)
		}
		return nil
	})
}

// EndRun tells how a run ended.
func (s *Store) EndRun(ctx context.Context, r Run) error {
	return s.change(ctx, s.lazy, "end run "+r.ID+" of session "+r.Session, func(q querier) error {
		_, err := q.ExecContext(ctx, s.dialect.sql("UPDATE berth_runs SET ended_at = {now}, exit_code = $1, detail = $2 WHERE session = $3 AND id = $4 AND gateway = $5"),
			r.ExitCode, text(r.Detail), r.Session, r.ID, r.Gateway)
		return err
	})
}

// StopRun asks the gateway of a run to stop it; of all of a session's with an empty
// id. It reports whether there was one to stop.
func (s *Store) StopRun(ctx context.Context, session, id string, why int) (asked bool, err error) {
	err = s.change(ctx, s.lazy, "stop run "+id+" of session "+session, func(q querier) error {
		result, err := q.ExecContext(ctx, "UPDATE berth_runs SET stop = $1 WHERE session = $2 AND (id = $3 OR CAST($3 AS TEXT) = '') AND ended_at = 0", why, session, id)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		asked = n > 0
		return err
	})
	return asked, err
}

// RunKey names a run.
type RunKey struct{ Session, ID string }

// Orders returns the runs that a gateway runs as far as the store knows, and
// whether each is to end.
func (s *Store) Orders(ctx context.Context, gateway string) (map[RunKey]int, error) {
	type row struct {
		key  RunKey
		stop int
	}
	rows, err := collect(ctx, s.read, func(from scanner) (r row, err error) {
		return r, from.Scan(&r.key.Session, &r.key.ID, &r.stop)
	}, "SELECT session, id, stop FROM berth_runs WHERE gateway = $1 AND ended_at = 0", gateway)
	orders := make(map[RunKey]int, len(rows))
	for _, r := range rows {
		orders[r.key] = r.stop
	}
	return orders, s.wrap("look for runs to stop", err)
}

// Runs reads the runs of a session, oldest first.
func (s *Store) Runs(ctx context.Context, session string) ([]Run, error) {
	runs, err := collect(ctx, s.read, scanRun, "SELECT "+runColumns+" FROM berth_runs WHERE session = $1 ORDER BY started_at, id", session)
	return runs, s.wrap("list the runs of session "+session, err)
}

// Run reads one.
func (s *Store) Run(ctx context.Context, session, id string) (Run, error) {
	r, err := scanRun(s.read.QueryRowContext(ctx, "SELECT "+runColumns+" FROM berth_runs WHERE session = $1 AND id = $2", session, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return r, s.wrap("read run "+id+" of session "+session, err)
}

const runColumns = "session, id, gateway, args, detached, started_at, ended_at, exit_code, detail"

func scanRun(row scanner) (Run, error) {
	var r Run
	var args string
	var detached, started, ended int64
	if err := row.Scan(&r.Session, &r.ID, &r.Gateway, &args, &detached, &started, &ended, &r.ExitCode, &r.Detail); err != nil {
		return r, err
	}
	r.Detached, r.Started = detached != 0, time.UnixMicro(started)
	if ended > 0 {
		r.Ended = time.UnixMicro(ended)
	}
	return r, json.Unmarshal([]byte(args), &r.Args)
}
