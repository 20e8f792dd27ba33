package sdk

import (
	"context"
	"io/fs"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// repeatedRun is one whose start was sent age ago, by a host that had been told of a
// registry before.
func repeatedRun(id string, age time.Duration, told []byte) *run {
	return &run{id: id, begun: time.Now(), start: &berthv1.RunStart{RepeatedAfterNs: int64(age), RunRegistry: told}}
}

// TestRegistryKnowsWhatItNeverHeard: a host that was told of it before it sent a start
// need not ask how old it is.
func TestRegistryKnowsWhatItNeverHeard(t *testing.T) {
	const age = time.Minute // it was made just now
	another := newRegistry().id
	for name, test := range map[string]struct {
		before func(t *testing.T, g *registry)
		told   func(g *registry) []byte
		want   error
	}{
		"this one":          {nil, func(g *registry) []byte { return g.id }, nil},
		"another":           {nil, func(*registry) []byte { return another }, fs.ErrNotExist},
		"none":              {nil, func(*registry) []byte { return nil }, fs.ErrNotExist},
		"a part":            {nil, func(g *registry) []byte { return g.id[:8] }, fs.ErrNotExist},
		"it came":           {func(t *testing.T, g *registry) { mustAdd(t, g, "ws", "r") }, func(g *registry) []byte { return g.id }, fs.ErrExist},
		"others did":        {func(t *testing.T, g *registry) { mustAdd(t, g, "ws", "q") }, func(g *registry) []byte { return g.id }, nil},
		"it came elsewhere": {func(t *testing.T, g *registry) { mustAdd(t, g, "other", "r") }, func(g *registry) []byte { return g.id }, nil},
		"it came and was forgotten": {func(t *testing.T, g *registry) {
			mustAdd(t, g, "ws", "r")
			for i := range rememberedRuns {
				mustAdd(t, g, "ws", strconv.Itoa(i))
			}
		}, func(g *registry) []byte { return g.id }, fs.ErrNotExist},
		"it came and its workspace was destroyed": {func(t *testing.T, g *registry) {
			mustAdd(t, g, "ws", "r")
			g.drop("ws")
		}, func(g *registry) []byte { return g.id }, fs.ErrNotExist},
		"and nothing is left of that": {func(t *testing.T, g *registry) {
			mustAdd(t, g, "ws", "r")
			done := g.destroying(t.Context(), "ws")
			g.drop("ws")
			done()
			if len(g.sets) != 0 {
				t.Errorf("%d sets are left", len(g.sets))
			}
		}, func(g *registry) []byte { return g.id }, fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRegistry()
			if test.before != nil {
				test.before(t, g)
			}
			err := g.add("ws", repeatedRun("r", age, test.told(g)))
			if test.want != nil {
				mustBe(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
			if err == nil {
				mustBe(t, g.add("ws", repeatedRun("r", age, g.id)), fs.ErrExist)
			}
		})
	}
}

// TestRegistryGoesByTheAgeWhereItForgot: what it forgot is older than the start.
func TestRegistryGoesByTheAgeWhereItForgot(t *testing.T) {
	g := newRegistry()
	g.since = time.Now().Add(-time.Minute)
	mustAdd(t, g, "ws", "r")
	set := g.sets["ws"]
	set.forgotten = time.Now().Add(-10 * time.Second)
	for _, told := range [][]byte{g.id, nil} {
		mustBe(t, g.add("ws", repeatedRun("late", 20*time.Second, told)), fs.ErrNotExist)
	}
	for i, told := range [][]byte{g.id, nil} {
		if err := g.add("ws", repeatedRun(strconv.Itoa(i), time.Second, told)); err != nil {
			t.Error(err)
		}
	}
}

// mustAdd has a run begin, and end.
func mustAdd(t *testing.T, g *registry, ws, id string) {
	t.Helper()
	r := &run{id: id}
	if err := g.add(ws, r); err != nil {
		t.Fatal(err)
	}
	g.remove(ws, r)
}

// openedBy attaches and returns what was told.
func openedBy(t *testing.T, client berthv1.ProviderClient) *berthv1.Opened {
	t.Helper()
	stream, err := client.Attach(t.Context(), &berthv1.AttachRequest{Workspace: key("ws")})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if opened := m.GetOpened(); opened != nil {
			return opened
		}
	}
}

// TestB3_AStartThatDidNotArriveRunsInAnyYoungServer which its host had been told of,
// and once.
func TestB3_AStartThatDidNotArriveRunsInAnyYoungServer(t *testing.T) {
	const age = time.Hour
	serve := func() berthv1.ProviderClient {
		process := newFakeProcess()
		process.exit(0, nil)
		return serveDurable(t, providing(starting(process)))
	}
	client, other := serve(), serve()
	registry, another := openedBy(t, client).GetRunRegistry(), openedBy(t, other).GetRunRegistry()
	if len(registry) != registryIDSize || string(registry) == string(another) {
		t.Fatalf("registries %x and %x", registry, another)
	}
	repeat := func(told []byte) *runCall {
		return startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a", RepeatedAfterNs: int64(age), RunRegistry: told})
	}
	for _, told := range [][]byte{nil, another} {
		_, err := waitStatus(repeat(told))
		mustBe(t, err, fs.ErrNotExist)
	}
	call := repeat(registry)
	if code, err := call.takeOutcome(); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	if string(call.registry) != string(registry) {
		t.Errorf("started by %x, opened by %x", call.registry, registry)
	}
	_, err := waitStatus(repeat(registry))
	mustBe(t, err, fs.ErrExist)
}

// TestAServerWhoseRunsEndWithTheirStreamsTellsNoRegistry: nothing is repeated to it.
func TestAServerWhoseRunsEndWithTheirStreamsTellsNoRegistry(t *testing.T) {
	process := newFakeProcess()
	process.exit(0, nil)
	client := serveProvider(t, providing(starting(process)))
	if id := openedBy(t, client).GetRunRegistry(); id != nil {
		t.Errorf("%x", id)
	}
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	if _, err := call.wait(); err != nil || call.registry != nil {
		t.Errorf("%x, %v", call.registry, err)
	}
}

// TestB3_TheGuestsRegistryIsRelayed in both directions: the plugin's own one died with
// the plugin before.
func TestB3_TheGuestsRegistryIsRelayed(t *testing.T) {
	told := make(chan []byte, 2)
	ws := &guarded{bare: newBare(), features: allFeatures, registry: []byte("said at the greeting")}
	guest := &scriptedGuest{run: func(stream runStream) error {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		told <- m.GetStart().GetRunRegistry()
		if err := stream.Send(startedBy([]byte("said at the start"))); err != nil {
			return err
		}
		return stream.Send(exitedMessage(0, 0, 0))
	}}
	ws.client = connectTo(t, func(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, guest) })
	client := serveProvider(t, providing(ws))
	if id := openedBy(t, client).GetRunRegistry(); string(id) != "said at the greeting" {
		t.Errorf("opened by %q", id)
	}
	call := startRun(t, t.Context(), client, &berthv1.RunStart{RepeatedAfterNs: 1, RunRegistry: []byte("known to the host")})
	if _, err := call.wait(); err != nil || string(call.registry) != "said at the start" {
		t.Errorf("started by %q, %v", call.registry, err)
	}
	if id := <-told; string(id) != "known to the host" {
		t.Errorf("handed on as %q", id)
	}
}

// TestB3_AStartThatDidNotArriveRunsInAYoungGuest, and in no other than the one that
// was opened.
func TestB3_AStartThatDidNotArriveRunsInAYoungGuest(t *testing.T) {
	const age = time.Hour
	var guests [2]*guarded
	var registries [2][]byte
	var started atomic.Int64
	for i := range guests {
		process := newFakeProcess()
		process.exit(0, nil)
		ws := starting(nil)
		ws.bare = newInside()
		ws.start = func(context.Context, Command) (Process, error) {
			started.Add(1)
			return process, nil
		}
		client := serveDurable(t, inside(ws))
		stream, err := client.Attach(t.Context(), &berthv1.AttachRequest{Workspace: key("inside")})
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		registries[i] = m.GetOpened().GetRunRegistry()
		guests[i] = &guarded{bare: newBare(), client: client, features: allFeatures, registry: registries[i]}
	}
	// The plugin that the host asks again is another one than it opened the first
	// guest with, as after its death.
	repeat := func(ws *guarded) (int, error) {
		client := serveProvider(t, providing(ws))
		return waitStatus(startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-a", RepeatedAfterNs: int64(age), RunRegistry: registries[0]}))
	}
	_, err := repeat(guests[1])
	mustBe(t, err, fs.ErrNotExist)
	if code, err := repeat(guests[0]); code != 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	_, err = repeat(guests[0])
	mustBe(t, err, fs.ErrExist)
	if n := started.Load(); n != 1 {
		t.Errorf("%d commands were started", n)
	}
}
