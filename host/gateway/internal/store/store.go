package store

import (
	"context"
	"errors"
)

// Store keeps records. All methods may be called concurrently.
type Store struct{}

// Open opens the store at a URL, postgres://… or file:PATH (or the path alone), and
// makes its tables where there are none.
func Open(_ context.Context, _ string) (*Store, error) {
	return nil, errors.New("open store: not yet")
}

// Close ends its connections.
func (s *Store) Close() error { return nil }
