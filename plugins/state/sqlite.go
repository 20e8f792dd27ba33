package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go
)

const (
	// busyTimeout is how long a transaction waits for another process's. Theirs
	// are as short as ours, so that only a broken disk makes anyone wait so long.
	busyTimeout = 15 * time.Second
	// busyPoll is the longest pause between two tries to get the write lock.
	// SQLite's own grow to 100 ms, too long beside a process that uploads.
	busyPoll = 4 * time.Millisecond
	// maxReaders bounds the read connections, each of which has a cache of 2 MB.
	maxReaders = 8
	// walPages is how many pages (of 4 KiB) the write-ahead log has when it is
	// written back: half of SQLite's cost per commit at 8 MiB of log.
	walPages = 2000
	// walLimit is the size to which the log is cut back after it grew.
	walLimit = 64 << 20
)

// sqliteStore is a store in an SQLite file, or in memory.
type sqliteStore struct {
	db   *sql.DB
	made *sql.DB // opened the file first, and made it where there was none
	name string
	// space tells what the disk has left.
	space func() (int64, error)

	// write holds the write connections while nobody writes. Those who wait for
	// a channel are served in their order.
	write chan *writers
	// closed is closed when the store is: nobody waits for a connection then.
	closed chan struct{}
	// read holds the read connections, of which nil ones are yet to be made. In
	// memory, where only one connection sees the data, it is nil.
	read chan *conn
}

// writers are the two connections for writing.
type writers struct {
	durable *conn // synchronous=FULL
	lazy    *conn // synchronous=NORMAL: a later durable commit syncs its writes too
}

// openMemory makes a store that ends with its process.
func openMemory(ctx context.Context) (*sqliteStore, error) {
	s := &sqliteStore{name: "memory", write: make(chan *writers, 1), closed: make(chan struct{})}
	var err error
	if s.db, err = sql.Open("sqlite", ":memory:"); err != nil {
		return nil, fmt.Errorf("open a store in memory: %w", err)
	}
	c, err := s.connect(ctx, "PRAGMA page_size=4096")
	if err == nil {
		_, err = c.c.ExecContext(ctx, schema)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a store in memory: %w", err), s.db.Close())
	}
	s.write <- &writers{durable: c, lazy: c}
	return s, nil
}

func (s *sqliteStore) String() string { return s.name }

// conn is a connection with its prepared statements. They run to their end, by
// a context that has none: each is short, and one that was interrupted would
// leave its outcome open.
type conn struct {
	c     *sql.Conn
	stmts map[string]*sql.Stmt
	file  fs.FileInfo           // which file it is on; nil in memory
	space func() (int64, error) // what its disk has left; nil in memory
	ctx   context.Context       //nolint:containedctx // without an end
}

// connect opens one more connection and runs the pragmas on it.
func (s *sqliteStore) connect(ctx context.Context, pragmas ...string) (*conn, error) {
	raw, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{c: raw, stmts: make(map[string]*sql.Stmt), ctx: context.WithoutCancel(ctx), space: s.space}
	for _, p := range pragmas {
		if _, err := raw.ExecContext(ctx, p); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", p, err), raw.Close())
		}
	}
	return c, nil
}

func (c *conn) close() error {
	var errs []error
	for _, stmt := range c.stmts {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, c.c.Close())...)
}

// stmt prepares a statement once.
func (c *conn) stmt(query string) (*sql.Stmt, error) {
	if stmt, ok := c.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := c.c.PrepareContext(c.ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = stmt
	return stmt, nil
}

func (c *conn) exec(query string, args ...any) (sql.Result, error) {
	stmt, err := c.stmt(query)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(c.ctx, args...)
}

// row reads one row and reports whether there is one.
func (c *conn) row(query string, args []any, dest ...any) (bool, error) {
	stmt, err := c.stmt(query)
	if err != nil {
		return false, err
	}
	switch err := stmt.QueryRowContext(c.ctx, args...).Scan(dest...); {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// rows calls each for every row.
func (c *conn) rows(query string, args []any, each func(*sql.Rows) error) (err error) {
	stmt, err := c.stmt(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(c.ctx, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *sqliteStore) view(ctx context.Context, fn func(tx) error) error {
	if s.read == nil {
		return s.update(ctx, lazy, fn)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var c *conn
	select {
	case c = <-s.read:
	case <-s.closed:
		return s.errClosed()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.read <- c }()
	file, err := s.look()
	if err != nil {
		return err
	}
	if c != nil && !os.SameFile(c.file, file) {
		_ = c.close() // of a file that is not there any more
		c = nil
	}
	if c == nil {
		fresh, err := s.connect(ctx, busyPragma(busyTimeout), "PRAGMA query_only=1")
		if err != nil {
			return s.fault(err)
		}
		fresh.file = file
		c = fresh
	}
	if _, err := c.exec("BEGIN"); err != nil {
		return s.fault(err)
	}
	defer func() { _, _ = c.exec("ROLLBACK") }() // nothing was changed
	return s.fault(fn(sqliteTx{c}))
}

func (s *sqliteStore) update(ctx context.Context, d durability, fn func(tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var w *writers
	select {
	case w = <-s.write:
	case <-s.closed:
		return s.errClosed()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.write <- w }()
	if err := s.refresh(ctx, &w); err != nil {
		return err
	}
	c := w.durable
	if d == lazy {
		c = w.lazy
	}
	return s.fault(transact(ctx, c, fn))
}

// transact runs fn between BEGIN IMMEDIATE and COMMIT.
func transact(ctx context.Context, c *conn, fn func(tx) error) error {
	if err := begin(ctx, c); err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			_, _ = c.exec("ROLLBACK") // SQLite has done so by itself after some errors
		}
	}()
	if err := fn(sqliteTx{c}); err != nil {
		return err
	}
	if _, err := c.exec("COMMIT"); err != nil {
		return err
	}
	committed = true
	return nil
}

// begin takes the write lock, for which other processes compete.
func begin(ctx context.Context, c *conn) error {
	deadline := time.Now().Add(busyTimeout)
	for {
		_, err := c.exec("BEGIN IMMEDIATE")
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(busyPoll/4 + rand.N(busyPoll*3/4)): //nolint:gosec // no secret
		}
	}
}

func (s *sqliteStore) errClosed() error { return fmt.Errorf("store %s: %w", s.name, fs.ErrClosed) }

func (s *sqliteStore) close() error {
	var w *writers
	select {
	case w = <-s.write:
	case <-s.closed:
		return nil
	}
	close(s.closed)
	var errs []error
	if w.lazy != w.durable {
		errs = append(errs, w.lazy.close())
	}
	for range cap(s.read) {
		if c := <-s.read; c != nil {
			errs = append(errs, c.close())
		}
	}
	// The last connection of all writes the log back and removes it.
	return errors.Join(append(errs, w.durable.close(), s.db.Close(), s.closeMade())...)
}

func busyPragma(d time.Duration) string {
	return fmt.Sprintf("PRAGMA busy_timeout=%d", d.Milliseconds())
}

func readers() int { return min(maxReaders, 2*runtime.GOMAXPROCS(0)+2) }
