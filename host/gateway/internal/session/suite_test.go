package session_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
)

// bed is a provider and an empty store, which any number of managers share.
type bed struct {
	*folders
	url   string
	store func(testing.TB) *store.Store // of one more gateway
}

func (b bed) manager(t testing.TB, change ...func(*session.Config)) *session.Manager {
	t.Helper()
	return newManager(t, b.folders, b.store(t), change...)
}

func TestSQLite(t *testing.T) {
	suite(t, func(t *testing.T) bed {
		b := bed{folders: newFolders(t), url: "file:" + filepath.Join(t.TempDir(), "sessions.db")}
		one := sync.OnceValue(func() *store.Store { return openStore(t, b.url) }) // a process has one
		b.store = func(testing.TB) *store.Store { return one() }
		return b
	})
}

// suite is what holds on both databases, most of it with two gateways.
func suite(t *testing.T, newBed func(*testing.T) bed) {
	for name, test := range map[string]func(*testing.T, bed){
		"20 at once open one session":                    testOneWorkspace,
		"ceilings hold under concurrency":                testCeilings,
		"ceilings make room":                             testRoom,
		"a session that is idle sleeps, and wakes":       testHibernate,
		"a request and hibernation race":                 testHibernateRace,
		"a long use is not put to sleep":                 testLongUse,
		"a purge ends what runs":                         testPurgeDuringRun,
		"a close elsewhere ends what runs":               testCloseElsewhere,
		"a run is stopped through another gateway":       testStopElsewhere,
		"the policy is shared":                           testPolicyShared,
		"a session opened here is used there":            testUsedElsewhere,
		"what a dead gateway was opening is taken over":  testTakeOver,
		"what a dead gateway left is put in order":       testLeft,
		"a create that fails leaves nothing":             testCreateFails,
		"a purge that fails is tried again":              testPurgeFails,
		"lifetimes end sessions":                         testLifetimes,
		"events are in order":                            testEvents,
		"a workspace that is gone is told":               testGone,
		"sessions churn through two gateways":            testChurn,
		"an opening that nobody waits for any more":      testAbandoned,
		"stored files of a closed session can be read":   testStored,
		"stored files are read without a start":          testStoredAsleep,
		"a wake that fails leaves the session asleep":    testWakeFails,
		"a run of an id that is going is refused":        testRunTwice,
		"a gateway that shuts down gives back its hold":  testShutdown,
		"without a stop a close keeps the workspace":     testPermanent,
		"a session's own token opens its session alone":  testTokens,
		"a session is not put to sleep by a failed stop": testStopFails,
		"a gateway that stalls while it opens":           testStalled,
		"a gateway that is killed while it opens":        testKilledInCreate,
		"a gateway that is killed while it runs":         testKilledInRun,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			test(t, newBed(t))
		})
	}
}

func evict(after time.Duration) func(*session.Config) {
	return func(c *session.Config) { c.Policy.EvictIdleAfter = &after }
}

func calm(c *session.Config) { c.Timing.Sweep = time.Hour }

// together calls f at once from many.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
