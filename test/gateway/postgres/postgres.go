//go:build unix

// Package postgres gives tests a PostgreSQL server of their own, from Debian's
// package postgresql or what else is found: it listens on a unix socket alone, in a
// folder that goes with it. It is for tests with the build tag `gateway`.
//
// Where PostgreSQL is not installed, a test is skipped, except in CI (the variable
// CI is set), where it fails.
package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

const (
	// startTimeout is how long a server may take to answer: on a loaded machine it
	// has to make a database first.
	startTimeout = 2 * time.Minute
	// stopTimeout is how long it may take to stop: it does not write anything back.
	stopTimeout = time.Minute
	// nobody is who runs the server if the tests are run by root, which PostgreSQL
	// refuses to be.
	nobody = 65534
)

// keeper runs the server until its own stdin ends, however this process ends, and
// removes the folder.
const keeper = `dir=$1; shift
"$@" >&2 </dev/null &
read _
kill -INT $!
wait $!
rm -rf "$dir"`

// Start starts a server and returns the URL of a database in it. It is stopped when
// the test ends.
func Start(t testing.TB) string {
	t.Helper()
	bin := binaries(t)
	dir, err := os.MkdirTemp("/tmp", "berth-pg-") //nolint:usetesting // a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(t.Context(), filepath.Join(bin, "initdb"), "-D", data, "-U", "berth", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("make a PostgreSQL cluster: %v\n%s", err, out)
	}

	// Not bound to the test's context: that ends before its cleanups.
	server := exec.Command("/bin/sh", "-c", keeper, "keeper", dir, //nolint:noctx // its stdin ends it
		filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200")
	server.SysProcAttr, server.Dir = attr, dir
	var output bytes.Buffer
	server.Stderr = &output
	lifeline, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Wait() // of an interrupted shell: it says nothing
	}()
	t.Cleanup(func() {
		lifeline.Close()
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
			<-ended
			t.Errorf("PostgreSQL did not stop within %v:\n%s", stopTimeout, output.String())
		}
	})
	address := databaseURL(dir, "postgres")
	if err := ready(t.Context(), address); err != nil {
		t.Fatalf("PostgreSQL does not answer: %v", err)
	}
	return address
}

// Database makes an empty database beside the one of a URL, and returns its own.
func Database(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	name := "test_" + strings.ToLower(rand.Text()[:12])
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("make a database: %v", err)
	}
	return databaseURL(u.Query().Get("host"), name)
}

func databaseURL(dir, name string) string {
	u := url.URL{Scheme: "postgres", User: url.User("berth"), Path: "/" + name, RawQuery: url.Values{"host": {dir}}.Encode()}
	return u.String()
}

func ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := sql.Open("pgx", address)
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		err := db.PingContext(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// binaries returns the folder of the server's programs, which Debian keeps out of
// the PATH.
func binaries(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		found = append(found, path)
	}
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	const text = "PostgreSQL is not installed (on Debian: apt-get install postgresql)"
	if os.Getenv("CI") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}
