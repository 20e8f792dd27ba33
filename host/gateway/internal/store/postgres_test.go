//go:build gateway && unix

package store_test

import (
	"errors"
	"strings"
	"testing"

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
	t.Run("a server that is not there is told without the password", func(t *testing.T) {
		_, err := store.Open(t.Context(), "postgres://user:secret@127.0.0.1:1/db?connect_timeout=1")
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	})
}
