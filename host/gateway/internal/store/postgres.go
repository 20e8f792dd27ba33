package store

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// connectTimeout bounds one try to reach the server: a request that waits for it
	// is to be told that it may come again rather than to hang.
	connectTimeout = 10 * time.Second
	// maxConns bounds each of a gateway's three pools, so that several gateways fit
	// below a server's usual hundred.
	maxConns = 8
	// connIdle is when an unused connection is closed.
	connIdle = 5 * time.Minute
)

// lockKey is that of the advisory locks of this program: any number that others
// do not use.
const lockKey = "727274687"

var postgresDialect = dialect{
	now:      "(extract(epoch from clock_timestamp())*1000000)::bigint",
	greatest: "greatest",
	share:    "FOR SHARE",
	lock:     "SELECT pg_advisory_xact_lock(" + lockKey + ")",
	again: func(err error) bool {
		var e *pgconn.PgError
		return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01") // serialization failure, deadlock
	},
}

func openPostgres(url string) (*Store, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The error of pgx repeats the URL, and may hold its password.
		return nil, errors.New("the PostgreSQL URL cannot be read: want postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	config.RuntimeParams["application_name"] = "berth"
	s := &Store{name: "postgres://" + config.Host + "/" + config.Database, dialect: postgresDialect}
	s.durable = stdlib.OpenDB(*config)
	s.read = stdlib.OpenDB(*config)
	lazy := config.Copy()
	lazy.RuntimeParams["synchronous_commit"] = "off"
	s.lazy = stdlib.OpenDB(*lazy)
	for _, db := range s.pools() {
		db.SetMaxOpenConns(maxConns)
		db.SetMaxIdleConns(maxConns)
		db.SetConnMaxIdleTime(connIdle)
	}
	return s, nil
}
