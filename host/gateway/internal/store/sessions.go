package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Options say how a record is claimed or changed.
type Options struct {
	// Gateway is who does it. With a Lease it owns the record for so long; without,
	// nobody does.
	Gateway string
	Lease   time.Duration
	// Busy says that Gateway uses the session for so long.
	Busy time.Duration
	// Active makes now the time of its last use, Fresh that of its creation too.
	Active, Fresh bool
	// Unused is for a change that must not happen under a use: no gateway but this
	// one may be using the session.
	Unused bool
	// Limits are not to be exceeded by the change: a *[CeilingError] if they would.
	Limits *Limits
}

// Limits bound the sessions, of which the one that is changed is one. Nil is none.
type Limits struct {
	Resident, Open, Tenant *int
}

// Which of the limits is meant.
const (
	LimitResident = "resident"
	LimitOpen     = "open"
	LimitTenant   = "tenant"
)

// CeilingError is a change that would exceed a limit.
type CeilingError struct {
	Which       string // one of the Limit constants
	Limit, Held int
}

// Error says which.
func (e *CeilingError) Error() string {
	return fmt.Sprintf("there are %d %s sessions of %d", e.Held, e.Which, e.Limit)
}

// Get reads a record.
func (s *Store) Get(ctx context.Context, id string) (Record, error) {
	row := s.read.QueryRowContext(ctx, s.dialect.sql("SELECT "+columns+" FROM berth_sessions WHERE id = $1"), id)
	r, err := scan(row)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return r, s.wrap("read session "+id, err)
}

// List reads the records in given states, oldest first.
func (s *Store) List(ctx context.Context, states ...State) ([]Record, error) {
	query := "SELECT " + columns + " FROM berth_sessions WHERE state IN (" + quoted(states) + ") ORDER BY created_at, id"
	records, err := collect(ctx, s.read, scan, s.dialect.sql(query))
	return records, s.wrap("list sessions", err)
}

// ListOpen is List of those that a client may use.
func (s *Store) ListOpen(ctx context.Context) ([]Record, error) { return s.List(ctx, open...) }

// Count counts those whose workspace runs and those that are open.
func (s *Store) Count(ctx context.Context) (residents, opened int, err error) {
	residents, opened, _, err = count(ctx, s.read, "", "")
	return residents, opened, s.wrap("count sessions", err)
}

// Claim enters a new record. One that is there is [ErrExists].
func (s *Store) Claim(ctx context.Context, r Record, o Options) (Record, error) {
	err := s.change(ctx, s.durable, "claim session "+r.ID, func(q querier) error {
		if err := s.admit(ctx, q, r, o.Limits); err != nil {
			return err
		}
		owner, busyBy := owners(o)
		row := q.QueryRowContext(ctx, s.dialect.sql(`INSERT INTO berth_sessions (id, state, version, generation, runtime, provider, tenant, token, ref, nonce, anonymous, can_stop,
			created_at, active_at, since_at, busy_until, busy_by, owner, lease_until, event_seq)
			VALUES ($1, $2, {now}, {now}, $3, $4, $5, $6, $7, $8, $9, $10, {now}, {now}, {now}, `+until("$11")+`, $12, $13, `+until("$14")+`, 0)
			ON CONFLICT (id) DO NOTHING RETURNING `+columns),
			r.ID, r.State, r.Runtime, r.Provider, r.Tenant, r.Token, r.Ref, r.Nonce, number(r.Anonymous), number(r.CanStop),
			o.Busy.Microseconds(), busyBy, owner, o.Lease.Microseconds())
		var err error
		if r, err = scan(row); errors.Is(err, sql.ErrNoRows) {
			return ErrExists
		}
		return err
	})
	return r, err
}

// Swap writes a record, if it still has the version that was read; else it is
// [ErrChanged], and so it is if it is gone, or in use and the change must not
// happen under a use.
func (s *Store) Swap(ctx context.Context, r Record, o Options) (Record, error) {
	err := s.change(ctx, s.durable, "change session "+r.ID, func(q querier) error {
		if err := s.admit(ctx, q, r, o.Limits); err != nil {
			return err
		}
		owner, busyBy := owners(o)
		query := `UPDATE berth_sessions SET version = version+1,
			since_at = CASE WHEN state = $1 THEN since_at ELSE {now} END,
			state = $1, generation = $2, runtime = $3, provider = $4, tenant = $5, token = $6, ref = $7, nonce = $8, anonymous = $9, can_stop = $10,
			owner = $11, lease_until = ` + until("$12")
		args := []any{r.State, r.Generation, r.Runtime, r.Provider, r.Tenant, r.Token, r.Ref, r.Nonce, number(r.Anonymous), number(r.CanStop),
			owner, o.Lease.Microseconds()}
		arg := func(value any) string {
			args = append(args, value)
			return "$" + strconv.Itoa(len(args))
		}
		if o.Active || o.Fresh {
			query += ", active_at = {now}"
		}
		if o.Fresh {
			query += ", created_at = {now}"
		}
		if o.Busy > 0 {
			query += ", busy_until = " + until(arg(o.Busy.Microseconds())) + ", busy_by = " + arg(busyBy)
		}
		query += " WHERE id = " + arg(r.ID) + " AND version = " + arg(r.Version)
		if o.Unused {
			query += " AND (busy_until <= {now} OR busy_by = " + arg(o.Gateway) + ")"
		}
		row := q.QueryRowContext(ctx, s.dialect.sql(query+" RETURNING "+columns), args...)
		changed, err := scan(row)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrChanged
		}
		r = changed
		return err
	})
	return r, err
}

// until is the moment after a time that is given as an argument; zero is never.
func until(arg string) string {
	return "CASE WHEN CAST(" + arg + " AS BIGINT) > 0 THEN {now} + " + arg + " ELSE 0 END"
}

func owners(o Options) (owner, busyBy string) {
	if o.Lease > 0 {
		owner = o.Gateway
	}
	if o.Busy > 0 {
		busyBy = o.Gateway
	}
	return owner, busyBy
}

// Delete removes a record with all that belongs to it, if it still has the version
// that was read; else it is [ErrChanged].
func (s *Store) Delete(ctx context.Context, r Record) error {
	return s.change(ctx, s.durable, "delete session "+r.ID, func(q querier) error {
		result, err := q.ExecContext(ctx, "DELETE FROM berth_sessions WHERE id = $1 AND version = $2", r.ID, r.Version)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, ErrChanged)
		}
		for _, table := range []string{"berth_events", "berth_runs"} {
			if _, err := q.ExecContext(ctx, "DELETE FROM "+table+" WHERE session = $1", r.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// admit checks the limits. Whoever may add to what is counted waits for those who
// did, so that no two see the same last place.
func (s *Store) admit(ctx context.Context, q querier, r Record, limits *Limits) error {
	if limits == nil {
		return nil
	}
	if s.dialect.lock != "" {
		if _, err := q.ExecContext(ctx, s.dialect.lock); err != nil {
			return err
		}
	}
	residents, opened, tenant, err := count(ctx, q, r.ID, r.Tenant)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		which   string
		applies bool
		limit   *int
		held    int
	}{
		{LimitOpen, r.State.Open(), limits.Open, opened},
		{LimitTenant, r.State.Open() && r.Tenant != "", limits.Tenant, tenant},
		{LimitResident, r.State.Resident(), limits.Resident, residents},
	} {
		if c.applies && c.limit != nil && c.held >= *c.limit {
			return &CeilingError{Which: c.which, Limit: *c.limit, Held: c.held}
		}
	}
	return nil
}

// count counts sessions other than one.
func count(ctx context.Context, q querier, except, tenant string) (residents, opened, tenants int, err error) {
	row := q.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state IN (`+quoted(resident)+`)), count(*) FILTER (WHERE state IN (`+quoted(open)+`)),
		count(*) FILTER (WHERE state IN (`+quoted(open)+`) AND tenant = $1)
		FROM berth_sessions WHERE id <> $2 AND state <> '`+string(Closed)+`'`, tenant, except)
	err = row.Scan(&residents, &opened, &tenants)
	return residents, opened, tenants, err
}

// quoted lists states for SQL. They are our own constants.
func quoted(states []State) string {
	var b strings.Builder
	for i, state := range states {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("'" + string(state) + "'")
	}
	return b.String()
}
