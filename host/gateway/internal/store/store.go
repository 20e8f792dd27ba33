package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Store keeps records. All methods may be called concurrently.
type Store struct {
	name    string // for errors: without a password
	dialect dialect
	// durable has what must not be lost once it was told to a client, lazy what may
	// be if the machine loses its power: which runs go, events, who uses what.
	durable, lazy, read *sql.DB
	// write is held by whoever writes to SQLite, which takes one writer at a time;
	// those who wait are served in their order. Nil for PostgreSQL.
	write chan struct{}
	// lock keeps other processes from an SQLite file.
	lock     *sql.Conn
	lockFile *sql.DB

	closing sync.Once
	closed  error
}

// What callers decide on.
var (
	// ErrNotFound is a record that is not there.
	ErrNotFound = errors.New("no such record")
	// ErrExists is a record that is there already.
	ErrExists = errors.New("the record exists")
	// ErrChanged is a record that somebody else changed, or holds, meanwhile.
	ErrChanged = errors.New("the record was changed meanwhile")
	// ErrInUse is a file that another process holds.
	ErrInUse = errors.New("the store is in use")
	// ErrVersion is a store whose tables another version made.
	ErrVersion = errors.New("the store is of another version")
)

// Open opens the store at a URL, postgres://… or file:PATH (or the path alone), and
// makes its tables where there are none.
func Open(ctx context.Context, url string) (*Store, error) {
	var s *Store
	var err error
	switch {
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		s, err = openPostgres(url)
	case strings.Contains(url, "://"):
		return nil, fmt.Errorf("open session store: a URL of scheme %q: want postgres://… or file:PATH", url[:strings.Index(url, "://")])
	case url == "":
		return nil, errors.New("open session store: no URL: want postgres://… or file:PATH")
	default:
		s, err = openSQLite(ctx, strings.TrimPrefix(url, "file:"))
	}
	if err != nil {
		return nil, fmt.Errorf("open session store: %w", err)
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open session store %s: %w", s.name, err), s.Close())
	}
	return s, nil
}

// String names the store, without a password.
func (s *Store) String() string { return s.name }

// Shared reports whether other processes may use the same records.
func (s *Store) Shared() bool { return s.write == nil }

// Close ends its connections. A second one does nothing.
func (s *Store) Close() error {
	s.closing.Do(func() { s.closed = s.close() })
	return s.closed
}

func (s *Store) close() error {
	var errs []error
	for _, db := range s.pools() {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.lock != nil { // after all that it keeps others from
		errs = append(errs, s.lock.Close())
	}
	if s.lockFile != nil {
		errs = append(errs, s.lockFile.Close())
	}
	return errors.Join(errs...)
}

func (s *Store) pools() []*sql.DB { return []*sql.DB{s.read, s.lazy, s.durable} }

// querier is a transaction, or the read connections.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

// collect reads all rows of a query.
func collect[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) (all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// maxTries is how often a transaction is begun that the database gave up in favour
// of another one. Theirs is short, so that the second try nearly always does.
const maxTries = 5

// change runs a transaction.
func (s *Store) change(ctx context.Context, db *sql.DB, what string, f func(querier) error) error {
	if s.write != nil {
		select {
		case s.write <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("session store: %s: %w", what, ctx.Err())
		}
		defer func() { <-s.write }()
	}
	var err error
	for range maxTries {
		if err = transact(ctx, db, f); err == nil || !s.dialect.again(err) {
			break
		}
	}
	return s.wrap(what, err)
}

func transact(ctx context.Context, db *sql.DB, f func(querier) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, rollback(tx))
	}
	return tx.Commit()
}

func rollback(tx *sql.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

// wrap leaves what callers decide on as it is.
func (s *Store) wrap(what string, err error) error {
	var ceiling *CeilingError
	if err == nil || errors.As(err, &ceiling) {
		return err
	}
	return fmt.Errorf("session store: %s: %w", what, err)
}
