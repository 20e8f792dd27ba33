package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"
)

const (
	// keepRuns is how long the end of a run is told.
	keepRuns = 10 * time.Minute
	// keepGateways is how long one that is gone is remembered: for no purpose but a
	// look at the table.
	keepGateways = time.Hour
)

// Beat says that a gateway lives, and renews its leases of the sessions that it is
// at work in.
func (s *Store) Beat(ctx context.Context, gateway string, sessions []string, lease time.Duration) error {
	return s.change(ctx, s.lazy, "renew leases", func(q querier) error {
		_, err := q.ExecContext(ctx, s.dialect.sql(`INSERT INTO berth_gateways (id, lease_until) VALUES ($1, {now} + CAST($2 AS BIGINT))
			ON CONFLICT (id) DO UPDATE SET lease_until = {now} + CAST($2 AS BIGINT)`), gateway, lease.Microseconds())
		if err != nil {
			return err
		}
		// In order, as in Renew.
		for _, id := range slices.Compact(slices.Sorted(slices.Values(sessions))) {
			_, err := q.ExecContext(ctx, s.dialect.sql(`UPDATE berth_sessions SET lease_until = {now} + CAST($1 AS BIGINT) WHERE id = $2 AND owner = $3 AND lease_until > 0`),
				lease.Microseconds(), id, gateway)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Leave gives back all that a gateway holds: it serves no session any more.
func (s *Store) Leave(ctx context.Context, gateway string) error {
	return s.change(ctx, s.durable, "give back leases", func(q querier) error {
		for _, query := range []string{
			`UPDATE berth_sessions SET lease_until = 0, owner = '' WHERE owner = $1`,
			`UPDATE berth_sessions SET busy_until = 0, busy_by = '' WHERE busy_by = $1`,
			`UPDATE berth_runs SET ended_at = {now}, detail = 'its gateway was shut down' WHERE gateway = $1 AND ended_at = 0`,
			`DELETE FROM berth_gateways WHERE id = $1`,
		} {
			if _, err := q.ExecContext(ctx, s.dialect.sql(query), gateway); err != nil {
				return err
			}
		}
		return nil
	})
}

// Tidy ends the runs of gateways that are gone, and forgets what is old.
func (s *Store) Tidy(ctx context.Context) error {
	return s.change(ctx, s.lazy, "tidy", func(q querier) error {
		if err := s.endLost(ctx, q); err != nil {
			return err
		}
		for _, t := range []struct {
			query string
			age   time.Duration
		}{
			{`DELETE FROM berth_runs WHERE ended_at > 0 AND ended_at < {now} - CAST($1 AS BIGINT)`, keepRuns},
			{`DELETE FROM berth_gateways WHERE lease_until < {now} - CAST($1 AS BIGINT)`, keepGateways},
		} {
			if _, err := q.ExecContext(ctx, s.dialect.sql(t.query), t.age.Microseconds()); err != nil {
				return err
			}
		}
		return nil
	})
}

// endLost ends the runs of gateways that are gone.
func (s *Store) endLost(ctx context.Context, q querier) error {
	_, err := q.ExecContext(ctx, s.dialect.sql(`UPDATE berth_runs SET ended_at = {now}, detail = 'its gateway is gone' WHERE ended_at = 0
		AND NOT EXISTS (SELECT 1 FROM berth_gateways g WHERE g.id = berth_runs.gateway AND g.lease_until > {now})`))
	return err
}

// Setting reads a value that all gateways share, empty if nobody has set it.
func (s *Store) Setting(ctx context.Context, name string) (string, error) {
	value, err := setting(ctx, s.read, name)
	return value, s.wrap("read setting "+name, err)
}

// ChangeSetting has f make a value of the one that is there.
func (s *Store) ChangeSetting(ctx context.Context, name string, f func(old string) (string, error)) error {
	return s.change(ctx, s.durable, "change setting "+name, func(q querier) error {
		if s.dialect.lock != "" {
			if _, err := q.ExecContext(ctx, s.dialect.lock); err != nil {
				return err
			}
		}
		old, err := setting(ctx, q, name)
		if err != nil {
			return err
		}
		value, err := f(old)
		if err != nil {
			return err
		}
		_, err = q.ExecContext(ctx, `INSERT INTO berth_settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2`, name, value)
		return err
	})
}

func setting(ctx context.Context, q querier, name string) (string, error) {
	var value string
	err := q.QueryRowContext(ctx, "SELECT value FROM berth_settings WHERE name = $1", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}
