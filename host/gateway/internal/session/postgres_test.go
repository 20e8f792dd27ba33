//go:build gateway && unix

package session_test

import (
	"testing"

	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/test/gateway/postgres"
)

func TestPostgres(t *testing.T) {
	server := postgres.Start(t)
	suite(t, func(t *testing.T) bed {
		url := postgres.Database(t, server)
		return bed{newFolders(t), url, func(t testing.TB) *store.Store { return openStore(t, url) }}
	})
}
