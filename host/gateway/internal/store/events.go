package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"
)

// KeepEvents is how many of a session's events are kept, the latest ones.
const KeepEvents = 1000

// Event is one operation in a session's log, without contents.
type Event struct {
	Seq      int64 // 1, 2, 3, … in each session, set by the log
	At       time.Time
	Op       string
	Target   string
	OK       bool
	Detail   string
	Duration time.Duration
}

// Append adds events to the logs of sessions, in their order. Those of a session
// that is not there are dropped.
func (s *Store) Append(ctx context.Context, events map[string][]Event) error {
	return s.change(ctx, s.lazy, "log events", func(q querier) error {
		// In order, as in Renew.
		for _, id := range slices.Sorted(maps.Keys(events)) {
			if err := appendEvents(ctx, q, id, events[id]); err != nil {
				return err
			}
		}
		return nil
	})
}

func appendEvents(ctx context.Context, q querier, id string, events []Event) error {
	var latest int64
	err := q.QueryRowContext(ctx, "UPDATE berth_sessions SET event_seq = event_seq + $1 WHERE id = $2 RETURNING event_seq", len(events), id).Scan(&latest)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, e := range events {
		seq := latest - int64(len(events)-1-i)
		_, err := q.ExecContext(ctx, "INSERT INTO berth_events (session, seq, at, op, target, ok, detail, duration) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
			id, seq, e.At.UnixMicro(), text(e.Op), text(e.Target), number(e.OK), text(e.Detail), e.Duration.Microseconds())
		if err != nil {
			return err
		}
	}
	_, err = q.ExecContext(ctx, "DELETE FROM berth_events WHERE session = $1 AND seq <= $2", id, latest-KeepEvents)
	return err
}

// Events reads a session's log after a sequence number, oldest first, and the
// latest number.
func (s *Store) Events(ctx context.Context, id string, after int64) (events []Event, latest int64, err error) {
	what := "read the log of session " + id
	err = s.read.QueryRowContext(ctx, "SELECT event_seq FROM berth_sessions WHERE id = $1", id).Scan(&latest)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, 0, s.wrap(what, err)
	}
	events, err = collect(ctx, s.read, scanEvent, "SELECT seq, at, op, target, ok, detail, duration FROM berth_events WHERE session = $1 AND seq > $2 AND seq <= $3 ORDER BY seq", id, after, latest)
	return events, latest, s.wrap(what, err)
}

func scanEvent(row scanner) (Event, error) {
	var e Event
	var at, ok, duration int64
	err := row.Scan(&e.Seq, &at, &e.Op, &e.Target, &ok, &e.Detail, &duration)
	e.At, e.OK, e.Duration = time.UnixMicro(at), ok != 0, time.Duration(duration)*time.Microsecond
	return e, err
}
