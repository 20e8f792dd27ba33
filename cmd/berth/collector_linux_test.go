package main

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-dev/berth/test/collector"
)

// collectorKey is that of a script's collector.
type collectorKey struct{}

// cmdCollector has the programs that a script starts export their traces.
func cmdCollector(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: collector")
	}
	for name, value := range ts.Value(collectorKey{}).(*collector.Collector).Environment("http/protobuf") {
		ts.Setenv(name, value)
	}
}

// cmdTrace waits for spans, each told as SERVICE:NAME, each below the one before it.
func cmdTrace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: trace SERVICE:NAME…")
	}
	c := ts.Value(collectorKey{}).(*collector.Collector)
	waitFor(ts, func() bool { return c.Find(args...) != nil }, "the trace "+strings.Join(args, ", "))
}

// keepCollector gives a script its own.
func keepCollector(env *testscript.Env, t testing.TB) {
	env.Values[collectorKey{}] = collector.Start(t)
}
