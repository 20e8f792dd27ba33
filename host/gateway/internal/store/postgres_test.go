//go:build gateway && unix

package store_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/test/gateway/postgres"
)

func TestPostgres(t *testing.T) {
	server := postgres.Start(t)
	suite(t, func(t *testing.T) string { return postgres.Database(t, server) }, "pgx")

	t.Run("many gateways start on an empty database", func(t *testing.T) {
		url := postgres.Database(t, server)
		errs := together(8, func(int) error {
			s, err := store.Open(t.Context(), url)
			if err != nil {
				return err
			}
			return s.Close()
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
	t.Run("connections that are dropped are made again", func(t *testing.T) {
		url := postgres.Database(t, server)
		s := openStore(t, url)
		r := claim(t, s, "a", store.Options{})
		admin, err := sql.Open("pgx", url)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		var dropped int
		if err := admin.QueryRowContext(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&dropped); err != nil || dropped == 0 {
			t.Fatalf("%d connections dropped, %v", dropped, err)
		}
		deadline := time.Now().Add(time.Minute)
		for {
			_, err := s.Get(t.Context(), "a")
			_, beatErr := s.Touch(t.Context(), "a", r.Generation, "g", time.Minute)
			_, swapErr := s.Swap(t.Context(), r, store.Options{})
			if err == nil && beatErr == nil && (swapErr == nil || errors.Is(swapErr, store.ErrChanged)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v, %v, %v", err, beatErr, swapErr)
			}
			time.Sleep(10 * time.Millisecond)
		}
		now, err := s.Get(t.Context(), "a")
		if err != nil || now.Version != r.Version+1 {
			t.Errorf("changed %d times: %v", now.Version-r.Version, err)
		}
	})
	t.Run("a server that is not there is told without the password", func(t *testing.T) {
		_, err := store.Open(t.Context(), "postgres://user:secret@127.0.0.1:1/db?connect_timeout=1")
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	})
}
