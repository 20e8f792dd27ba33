package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/berth-dev/berth/shared/workspace"
)

// The modes of what is made: contents are their owner's alone.
const (
	storeFileMode fs.FileMode = 0o600
	storeDirMode  fs.FileMode = 0o700
)

// openFile opens the store in a file, and makes it where there is none. A file
// that is not ours, or of a newer version, is left as it is.
func openFile(ctx context.Context, path string) (*sqliteStore, error) {
	s := &sqliteStore{name: path, write: make(chan *writers, 1), closed: make(chan struct{})}
	s.space = func() (int64, error) { return diskSpace(path) }
	if err := os.MkdirAll(filepath.Dir(path), storeDirMode); err != nil {
		return nil, fmt.Errorf("store %s: make its folder: %w", path, err)
	}
	_, statErr := os.Lstat(path)
	var err error
	if s.made, err = sql.Open("sqlite", fileURL(path, "rwc")); err != nil {
		return nil, fmt.Errorf("store %s: %w", path, err)
	}
	s.made.SetMaxIdleConns(-1) // one that is closed is to be closed: see refresh
	s.db = s.made
	w, err := s.openWriters(ctx, errors.Is(statErr, fs.ErrNotExist))
	if err != nil {
		return nil, errors.Join(s.fault(err), s.made.Close())
	}
	// From here on a file that is gone stays so: what a new one in its place
	// promised, nobody would find.
	if s.db, err = sql.Open("sqlite", fileURL(path, "rw")); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: %w", path, err), w.close(), s.made.Close())
	}
	s.db.SetMaxIdleConns(-1)
	s.write <- w
	s.read = make(chan *conn, readers())
	for range cap(s.read) {
		s.read <- nil
	}
	return s, nil
}

func (s *sqliteStore) closeMade() error {
	if s.made == nil {
		return nil
	}
	return s.made.Close()
}

// look tells which file is at the store's path; nil in memory. One that was
// deleted would go on taking writes that nobody ever reads.
func (s *sqliteStore) look() (fs.FileInfo, error) {
	if s.read == nil {
		return nil, nil //nolint:nilnil // there is none, and no fault
	}
	file, err := os.Stat(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store %s: the file is gone from under its plugin: put it back: %w", s.name, workspace.ErrUnavailable)
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return file, nil
}

// refresh opens the write connections anew if another file took the old one's
// place, such as a backup that was restored.
func (s *sqliteStore) refresh(ctx context.Context, w **writers) error {
	file, err := s.look()
	if err != nil || file == nil || os.SameFile((*w).durable.file, file) {
		return err
	}
	fresh, err := s.openWriters(ctx, false)
	if err != nil {
		return s.fault(err)
	}
	_ = (*w).close()
	*w = fresh
	return nil
}

func (w *writers) close() error {
	if w.lazy == w.durable {
		return w.durable.close()
	}
	return errors.Join(w.lazy.close(), w.durable.close())
}

func fileURL(path, mode string) string {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" {
		path = "/" + path
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=" + mode}
	return u.String()
}

func (s *sqliteStore) openWriters(ctx context.Context, fresh bool) (*writers, error) {
	// Before anything else: looking at a file changes nothing in it.
	c, err := s.connect(ctx, busyPragma(busyTimeout), "PRAGMA synchronous=FULL")
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, c, fresh); err != nil {
		return nil, errors.Join(err, c.close())
	}
	pragmas := []string{
		busyPragma(busyPoll), // begin tries again
		fmt.Sprintf("PRAGMA wal_autocheckpoint=%d", walPages),
		fmt.Sprintf("PRAGMA journal_size_limit=%d", walLimit),
	}
	for _, p := range pragmas {
		if _, err := c.exec(p); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	lazy, err := s.connect(ctx, append(pragmas, "PRAGMA synchronous=NORMAL")...)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.file, err = os.Stat(s.name); err != nil {
		return nil, errors.Join(fmt.Errorf("store: %w", err), lazy.close(), c.close())
	}
	return &writers{durable: c, lazy: lazy}, nil
}

// prepare checks what the file is, makes the tables in an empty one, and
// switches it to a write-ahead log.
func (s *sqliteStore) prepare(ctx context.Context, c *conn, fresh bool) error {
	version, err := s.check(c)
	if err != nil {
		return err
	}
	if fresh { // readable by its owner alone before anything is in it
		if err := os.Chmod(s.name, storeFileMode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store %s: make it private: %w", s.name, err)
		}
	}
	// Other processes that open the same new file are in the way of this switch,
	// and SQLite does not wait for them here.
	deadline := time.Now().Add(busyTimeout)
	for {
		var mode string
		_, err := c.row("PRAGMA journal_mode=WAL", nil, &mode)
		if err == nil && mode != "wal" {
			err = fmt.Errorf("store %s: SQLite keeps to journal mode %q where a write-ahead log is needed: is this a network file system?", s.name, mode)
		}
		if err == nil {
			break
		}
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(busyPoll):
		}
	}
	if version == schemaVersion {
		return nil
	}
	return transact(ctx, c, func(tx) error {
		if version, err := s.check(c); err != nil || version == schemaVersion {
			return err // another process was first
		}
		marks := fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=%d", applicationID, schemaVersion)
		_, err := c.c.ExecContext(ctx, schema+marks)
		return err
	})
}

// check returns the version of the schema, zero if the file is empty. A file
// that we may not use is an error.
func (s *sqliteStore) check(c *conn) (version int, err error) {
	var application, tables int
	if _, err := c.row("PRAGMA application_id", nil, &application); err != nil {
		return 0, err
	}
	if _, err := c.row("PRAGMA user_version", nil, &version); err != nil {
		return 0, err
	}
	if _, err := c.row("SELECT count(*) FROM sqlite_schema", nil, &tables); err != nil {
		return 0, err
	}
	switch {
	case application == 0 && version == 0 && tables == 0:
		return 0, nil
	case application != applicationID:
		return 0, fmt.Errorf("store %s: the SQLite file belongs to another program (application id %#x): it was not touched; name another file: %w", s.name, application, workspace.ErrInvalid)
	case version > schemaVersion:
		return 0, fmt.Errorf("store %s: the file has schema version %d, which is newer than this plugin's %d: it was not touched; use a newer plugin: %w", s.name, version, schemaVersion, workspace.ErrInvalid)
	case version < schemaVersion:
		return 0, fmt.Errorf("store %s: the file has schema version %d, which no plugin ever wrote: it was not touched: %w", s.name, version, workspace.ErrInvalid)
	}
	return version, nil
}

func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}

// fault says what an error of SQLite means to a caller. Others pass as they are.
func (s *sqliteStore) fault(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("store %s: the disk is full: %w (%w)", s.name, syscall.ENOSPC, err)
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("store %s: the file cannot be written: %w (%w)", s.name, syscall.EROFS, err)
	case sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("store %s: the file cannot be opened or made: check that its folder exists and may be written: %w", s.name, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("store %s: another process kept it locked for %v: %w (%w)", s.name, busyTimeout, workspace.ErrTransient, err)
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("store %s: this is not an SQLite file: it was not touched; name another file: %w (%w)", s.name, workspace.ErrInvalid, err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("store %s: the file is damaged: keep a copy and restore it from a backup: %w", s.name, err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("store %s: reading or writing the disk: %w (%w)", s.name, syscall.EIO, err)
	}
	return fmt.Errorf("store %s: %w", s.name, err)
}
