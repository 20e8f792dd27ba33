package store

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Touch says that a gateway uses a running session from now on, for the time of a
// lease. It reports whether that is so: a session that has been put to sleep,
// closed or started anew meanwhile is not.
func (s *Store) Touch(ctx context.Context, id string, generation int64, gateway string, lease time.Duration) (ok bool, err error) {
	err = s.change(ctx, s.lazy, "use session "+id, func(q querier) error {
		ok, err = s.touch(ctx, q, id, generation, gateway, lease, 0)
		return err
	})
	return ok, err
}

// Use is one of a gateway's uses that [Store.Renew] renews.
type Use struct {
	Generation int64
	// Idle is how long ago its last activity was.
	Idle time.Duration
	// Lease is how long the session is in use from now on, at least.
	Lease time.Duration
}

// Renew is [Store.Touch] of many sessions at once. It returns those that it could
// not touch.
func (s *Store) Renew(ctx context.Context, gateway string, uses map[string]Use) (lost []string, err error) {
	if len(uses) == 0 {
		return nil, nil
	}
	err = s.change(ctx, s.lazy, "renew uses", func(q querier) error {
		lost = nil
		// In order: two gateways that renew the same ones must not wait for each other.
		for _, id := range slices.Sorted(maps.Keys(uses)) {
			u := uses[id]
			ok, err := s.touch(ctx, q, id, u.Generation, gateway, u.Lease, u.Idle)
			if err != nil {
				return err
			}
			if !ok {
				lost = append(lost, id)
			}
		}
		return nil
	})
	return lost, err
}

// touch never shortens a use: it may be another gateway's, and then several are said
// to use the session, or one of this gateway's that began meanwhile.
func (s *Store) touch(ctx context.Context, q querier, id string, generation int64, gateway string, lease, idle time.Duration) (bool, error) {
	result, err := q.ExecContext(ctx, s.dialect.sql(`UPDATE berth_sessions SET
		active_at = {greatest}(active_at, {now} - CAST($1 AS BIGINT)),
		busy_by = CASE WHEN busy_until <= {now} OR busy_by = $2 THEN $2 ELSE '*' END,
		busy_until = {greatest}(busy_until, {now} + CAST($3 AS BIGINT))
		WHERE id = $4 AND generation = $5 AND state = 'running'`),
		idle.Microseconds(), gateway, lease.Microseconds(), id, generation)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
