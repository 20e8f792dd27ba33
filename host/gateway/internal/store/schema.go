package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// schemaVersion goes up with every change that an older gateway would not
// understand.
const schemaVersion = 1

// schema is what both databases take. Moments and durations are microseconds.
// A lease, or a use, that is over is one whose moment has passed.
var schema = []string{
	`CREATE TABLE berth_sessions (
		id          TEXT PRIMARY KEY,
		state       TEXT NOT NULL,
		version     BIGINT NOT NULL,
		generation  BIGINT NOT NULL,
		runtime     TEXT NOT NULL,
		provider    TEXT NOT NULL,
		tenant      TEXT NOT NULL,
		token       TEXT NOT NULL,
		ref         TEXT NOT NULL,
		nonce       TEXT NOT NULL,
		anonymous   BIGINT NOT NULL,
		can_stop    BIGINT NOT NULL,
		created_at  BIGINT NOT NULL,
		active_at   BIGINT NOT NULL,
		since_at    BIGINT NOT NULL,
		busy_until  BIGINT NOT NULL,
		busy_by     TEXT NOT NULL,
		owner       TEXT NOT NULL,
		lease_until BIGINT NOT NULL,
		event_seq   BIGINT NOT NULL)`,
	`CREATE INDEX berth_sessions_state ON berth_sessions (state, active_at)`,
	`CREATE TABLE berth_events (
		session  TEXT NOT NULL,
		seq      BIGINT NOT NULL,
		at       BIGINT NOT NULL,
		op       TEXT NOT NULL,
		target   TEXT NOT NULL,
		ok       BIGINT NOT NULL,
		detail   TEXT NOT NULL,
		duration BIGINT NOT NULL,
		PRIMARY KEY (session, seq))`,
	`CREATE TABLE berth_runs (
		session    TEXT NOT NULL,
		id         TEXT NOT NULL,
		gateway    TEXT NOT NULL,
		args       TEXT NOT NULL,
		detached   BIGINT NOT NULL,
		started_at BIGINT NOT NULL,
		ended_at   BIGINT NOT NULL,
		exit_code  BIGINT,
		detail     TEXT NOT NULL,
		stop       BIGINT NOT NULL,
		PRIMARY KEY (session, id))`,
	`CREATE INDEX berth_runs_gateway ON berth_runs (gateway, ended_at)`,
	`CREATE TABLE berth_gateways (
		id          TEXT PRIMARY KEY,
		lease_until BIGINT NOT NULL)`,
	`CREATE TABLE berth_settings (
		name  TEXT PRIMARY KEY,
		value TEXT NOT NULL)`,
	`CREATE TABLE berth_schema (
		version BIGINT NOT NULL)`,
}

// prepare makes the tables in an empty database, and refuses those of another
// version.
func (s *Store) prepare(ctx context.Context) error {
	return s.change(ctx, s.durable, "make its tables", func(q querier) error {
		if s.dialect.lock != "" { // several gateways that start on an empty database
			if _, err := q.ExecContext(ctx, s.dialect.lock); err != nil {
				return err
			}
		}
		there, err := s.hasTables(ctx, q)
		if err != nil {
			return err
		}
		if there {
			if err := checkVersion(ctx, q); err != nil || s.Shared() {
				return err
			}
			// The file is this process's: no gateway of before lives, and nobody needs to
			// wait until that shows. What one was doing with a session keeps its lease:
			// its plugin, or an engine, may still be at it.
			if _, err := q.ExecContext(ctx, "DELETE FROM berth_gateways"); err != nil {
				return err
			}
			return s.endLost(ctx, q)
		}
		for _, statement := range schema {
			if _, err := q.ExecContext(ctx, statement); err != nil {
				name, _, _ := strings.Cut(strings.TrimPrefix(statement, "CREATE "), "(")
				return fmt.Errorf("create %s: %w", strings.TrimSpace(name), err)
			}
		}
		if s.write != nil {
			if _, err := q.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id=%d", applicationID)); err != nil {
				return err
			}
		}
		_, err = q.ExecContext(ctx, "INSERT INTO berth_schema (version) VALUES ($1)", schemaVersion)
		return err
	})
}

func (s *Store) hasTables(ctx context.Context, q querier) (bool, error) {
	query := "SELECT count(*) FROM sqlite_schema WHERE name = 'berth_schema'"
	if s.Shared() {
		query = "SELECT count(*) FROM (SELECT to_regclass('berth_schema') AS t) AS x WHERE t IS NOT NULL"
	}
	var n int
	err := q.QueryRowContext(ctx, query).Scan(&n)
	return n > 0, err
}

func checkVersion(ctx context.Context, q querier) error {
	var version int
	err := q.QueryRowContext(ctx, "SELECT version FROM berth_schema").Scan(&version)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("its tables tell no version: %w", ErrVersion)
	case err != nil:
		return err
	case version > schemaVersion:
		return fmt.Errorf("its tables have version %d, which is newer than this program's %d: they were not touched; use a newer berth: %w", version, schemaVersion, ErrVersion)
	case version < schemaVersion:
		return fmt.Errorf("its tables have version %d, which no berth ever wrote: they were not touched: %w", version, ErrVersion)
	}
	return nil
}
