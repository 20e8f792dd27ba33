package store

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

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The modes of what is made: who has used what is its owner's alone.
const (
	fileMode fs.FileMode = 0o600
	dirMode  fs.FileMode = 0o700
)

const (
	// waits is for how long, in milliseconds, a transaction waits for another
	// connection's. All are this process's own, and short.
	waits = "busy_timeout(15000)"
	// maxReaders bounds the read connections, each of which has a cache of 2 MB.
	maxReaders = 4
)

var sqliteDialect = dialect{
	now:      "CAST(unixepoch('subsec')*1000000 AS INTEGER)",
	greatest: "max",
	again:    func(error) bool { return false },
}

// openSQLite opens a file for this process alone. Two gateways on one file could
// not wait for each other well, and over a network file system not at all.
func openSQLite(ctx context.Context, path string) (_ *Store, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return nil, fmt.Errorf("make its folder: %w", err)
	}
	s := &Store{name: path, dialect: sqliteDialect, write: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", path, err), s.Close())
		}
	}()
	if err := s.hold(ctx, path+".lock"); err != nil {
		return nil, err
	}
	_, statErr := os.Lstat(path)
	// Before anything else, and without a change to a file that is not ours.
	if err := checkSQLite(ctx, path); err != nil {
		return nil, err
	}
	if errors.Is(statErr, fs.ErrNotExist) {
		if err := os.Chmod(path, fileMode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("make it private: %w", err)
		}
	}
	// In write-ahead mode, NORMAL may forget the last transactions when the machine
	// loses its power: not those that claim a session, without which a workspace
	// would be left that nobody knows of.
	if s.durable, err = openPool(path, 1, waits, "journal_mode(WAL)", "synchronous(FULL)"); err != nil {
		return nil, err
	}
	if s.lazy, err = openPool(path, 1, waits, "synchronous(NORMAL)"); err != nil {
		return nil, err
	}
	if s.read, err = openPool(path, maxReaders, waits, "query_only(1)"); err != nil {
		return nil, err
	}
	var mode string
	if err := s.durable.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return nil, err
	}
	if mode != "wal" {
		return nil, fmt.Errorf("SQLite keeps to journal mode %q where a write-ahead log is needed: is this a network file system?", mode)
	}
	return s, nil
}

// hold takes the lock of a file beside the store, which ends with this process
// however that ends: SQLite's own, so that it works wherever SQLite does.
func (s *Store) hold(ctx context.Context, path string) error {
	// Nobody else is to hold it.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		return err
	}
	if s.lockFile, err = openPool(path, 1, "busy_timeout(0)"); err != nil {
		return err
	}
	// The connection is kept out of the pool, which would end its transaction.
	if s.lock, err = s.lockFile.Conn(ctx); err == nil {
		_, err = s.lock.ExecContext(ctx, "BEGIN EXCLUSIVE")
	}
	if isBusy(err) {
		return fmt.Errorf("another process has this store open: an SQLite store serves one gateway; several share a postgres:// one: %w", ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("lock it (%s): %w", path, err)
	}
	return nil
}

func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}

// openPool opens connections to a file, with pragmas.
func openPool(path string, conns int, pragmas ...string) (*sql.DB, error) {
	path = filepath.ToSlash(path)
	if runtime.GOOS == "windows" {
		path = "/" + path
	}
	query := url.Values{"_txlock": {"immediate"}, "_pragma": pragmas}
	u := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// applicationID marks an SQLite file as a gateway's: "bsrv".
const applicationID = 0x62737276

// checkSQLite refuses a file that holds another program's tables.
func checkSQLite(ctx context.Context, path string) (err error) {
	db, err := openPool(path, 1, waits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var application, tables int
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application); err != nil {
		return fmt.Errorf("read it as an SQLite file: %w", err)
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return fmt.Errorf("read it as an SQLite file: %w", err)
	}
	if tables > 0 && application != applicationID {
		return fmt.Errorf("the SQLite file belongs to another program (application id %#x): it was not touched; name another file", application)
	}
	return nil
}
