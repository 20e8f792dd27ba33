package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

func testEvents(t *testing.T, s *store.Store) {
	claim(t, s, "a", store.Options{})
	event := func(op string) store.Event {
		return store.Event{At: time.UnixMicro(1_700_000_000_000_001), Op: op, Target: "a\x00b\xffc", OK: true, Detail: "exit 0", Duration: 1500 * time.Microsecond}
	}
	if err := s.Append(t.Context(), map[string][]store.Event{"a": {event("1"), event("2")}, "gone": {event("x")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), map[string][]store.Event{"a": {event("3")}}); err != nil {
		t.Fatal(err)
	}
	events, latest, err := s.Events(t.Context(), "a", 1)
	if err != nil || latest != 3 || len(events) != 2 || events[0].Seq != 2 || events[0].Op != "2" || events[1].Op != "3" {
		t.Fatalf("%+v, %d, %v", events, latest, err)
	}
	want := event("2")
	want.Seq, want.Target = 2, "a\ufffdb\ufffdc"
	if !events[0].At.Equal(want.At) {
		t.Errorf("at %v", events[0].At)
	}
	events[0].At = want.At
	if events[0] != want {
		t.Errorf("%+v, want %+v", events[0], want)
	}
	if _, _, err := s.Events(t.Context(), "gone", 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	many := make([]store.Event, store.KeepEvents+10)
	for i := range many {
		many[i] = event("many")
	}
	if err := s.Append(t.Context(), map[string][]store.Event{"a": many}); err != nil {
		t.Fatal(err)
	}
	events, latest, err = s.Events(t.Context(), "a", 0)
	if err != nil || len(events) != store.KeepEvents || latest != store.KeepEvents+13 || events[len(events)-1].Seq != latest {
		t.Errorf("%d events, latest %d, %v", len(events), latest, err)
	}
}

func testRuns(t *testing.T, s *store.Store) {
	claim(t, s, "a", store.Options{})
	for _, gateway := range []string{"g", "h"} {
		if err := s.Beat(t.Context(), gateway, nil, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	run := store.Run{Session: "a", ID: "r1", Gateway: "g", Args: []string{"sh", "-c", "a\x00b"}, Detached: true}
	if err := s.BeginRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "a", ID: "r1", Gateway: "h"}); !errors.Is(err, store.ErrExists) {
		t.Errorf("the same id again: %v", err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "b", ID: "r1", Gateway: "h"}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("in no session: %v", err)
	}
	key := store.RunKey{Session: "a", ID: "r1"}
	if orders, err := s.Orders(t.Context(), "g"); err != nil || len(orders) != 1 || orders[key] != 0 {
		t.Errorf("orders: %v, %v", orders, err)
	}
	if asked, err := s.StopRun(t.Context(), "a", "r1", store.StopAsked); !asked || err != nil {
		t.Errorf("stop: %v, %v", asked, err)
	}
	if orders, err := s.Orders(t.Context(), "g"); err != nil || orders[key] != store.StopAsked {
		t.Errorf("orders: %v, %v", orders, err)
	}
	if asked, err := s.StopRun(t.Context(), "a", "other", store.StopAsked); asked || err != nil {
		t.Errorf("stop of none: %v, %v", asked, err)
	}
	code := 7
	run.ExitCode, run.Detail = &code, "exit 7"
	if err := s.EndRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	got, err := s.Run(t.Context(), "a", "r1")
	if err != nil || got.Ended.IsZero() || *got.ExitCode != 7 || got.Detail != "exit 7" || !got.Detached || len(got.Args) != 3 || got.Args[2] != "a\x00b" {
		t.Errorf("ended: %+v, %v", got, err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "a", ID: "r1", Gateway: "h"}); err != nil {
		t.Errorf("the id of one that ended: %v", err)
	}
	if runs, err := s.Runs(t.Context(), "a"); err != nil || len(runs) != 1 || runs[0].Gateway != "h" || !runs[0].Ended.IsZero() || runs[0].ExitCode != nil {
		t.Errorf("runs: %+v, %v", runs, err)
	}
	// A gateway that is gone runs nothing.
	if err := s.Beat(t.Context(), "h", nil, time.Microsecond); err != nil {
		t.Fatal(err)
	}
	until(t, s, "a", func(store.Record) bool {
		if err := s.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := s.Run(t.Context(), "a", "r1")
		return err == nil && !got.Ended.IsZero()
	})
}

func testSettings(t *testing.T, s *store.Store) {
	if value, err := s.Setting(t.Context(), "x"); value != "" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	errs := together(20, func(int) error {
		return s.ChangeSetting(t.Context(), "x", func(old string) (string, error) { return old + "x", nil })
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if value, err := s.Setting(t.Context(), "x"); value != strings.Repeat("x", 20) || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	refused := errors.New("refused")
	if err := s.ChangeSetting(t.Context(), "x", func(string) (string, error) { return "", refused }); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}
