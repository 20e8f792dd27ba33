package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

// TestMain makes this binary also another process that opens a store.
func TestMain(m *testing.M) {
	if url := os.Getenv("STORE_TEST_OPEN"); url != "" {
		s, err := store.Open(context.Background(), url)
		if err != nil {
			fmt.Println(err)
			os.Exit(0)
		}
		fmt.Println("opened")
		_, _ = os.Stdin.Read(make([]byte, 1))
		_ = s // killed with it open, or ended like this
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestSQLite(t *testing.T) {
	suite(t, func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "made", "sessions.db") }, "sqlite")
}

func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// suite is what both databases must do. Each url is of an empty store.
func suite(t *testing.T, url func(*testing.T) string, driver string) {
	for name, test := range map[string]func(*testing.T, *store.Store){
		"a record keeps what it was given":               testRoundTrip,
		"an id is claimed once":                          testClaimOnce,
		"a change is from the version that was read":     testSwap,
		"a record that is in use elsewhere is not taken": testUnused,
		"a use is of a running session":                  testTouch,
		"limits hold under concurrency":                  testLimits,
		"leases run out unless they are renewed":         testLeases,
		"events are numbered and bounded":                testEvents,
		"runs are stopped by others":                     testRuns,
		"a setting is changed by one at a time":          testSettings,
	} {
		t.Run(name, func(t *testing.T) { test(t, openStore(t, url(t))) })
	}
	t.Run("it is the same after it was closed", func(t *testing.T) {
		u := url(t)
		s := openStore(t, u)
		claim(t, s, "a", store.Options{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := openStore(t, u).Get(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a newer schema is refused", func(t *testing.T) {
		u := url(t)
		if err := openStore(t, u).Close(); err != nil {
			t.Fatal(err)
		}
		source := u
		if driver == "sqlite" {
			source = strings.TrimPrefix(u, "file:")
		}
		db, err := sql.Open(driver, source)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, version := range []int{7, 0} {
			if _, err := db.ExecContext(t.Context(), fmt.Sprintf("UPDATE berth_schema SET version = %d", version)); err != nil {
				t.Fatal(err)
			}
			_, err = store.Open(t.Context(), u)
			if !errors.Is(err, store.ErrVersion) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", version)) {
				t.Errorf("version %d: %v", version, err)
			}
		}
	})
}

func claim(t testing.TB, s *store.Store, id string, o store.Options) store.Record {
	t.Helper()
	r, err := s.Claim(t.Context(), store.Record{ID: id, State: store.Running, Token: "berth-0123456789abcdef", Tenant: "t"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until reads a record until something is so.
func until(t testing.TB, s *store.Store, id string, so func(store.Record) bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		r, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if so(r) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %+v", r)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// together calls f at once from many, and returns their errors.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

func successes(t testing.TB, errs []error, other error) int {
	t.Helper()
	n := 0
	for _, err := range errs {
		if err == nil {
			n++
		} else if !errors.Is(err, other) {
			t.Errorf("%v", err)
		}
	}
	return n
}
