package conformance

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// wantError checks that err is one of the kinds.
func wantError(t testing.TB, what string, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return
		}
	}
	t.Errorf("%s: got error %v (%T), want %v", what, err, err, kinds)
}

// wantPathError checks in addition that it is an *fs.PathError, or for two
// paths an *os.LinkError, with the path as given.
func wantPathError(t testing.TB, what string, err error, path string, kinds ...error) {
	t.Helper()
	wantError(t, what, err, kinds...)
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &linkErr):
		if linkErr.Old != path && linkErr.New != path {
			t.Errorf("%s: the error is about %q and %q, want %q as given", what, linkErr.Old, linkErr.New, path)
		}
	case !errors.As(err, &pathErr):
		t.Errorf("%s: got error %v (%T), want an *fs.PathError", what, err, err)
	case pathErr.Path != path:
		t.Errorf("%s: the error is about %q, want %q as given", what, pathErr.Path, path)
	}
}

// wantInvalid checks that a request was refused.
func wantInvalid(t testing.TB, what string, err error) {
	t.Helper()
	wantError(t, what, err, workspace.ErrInvalid)
}

// wantUnavailable checks that a workspace is told to be gone.
func wantUnavailable(t testing.TB, what string, err error) {
	t.Helper()
	wantError(t, what, err, workspace.ErrUnavailable)
}
