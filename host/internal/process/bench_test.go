package process

import (
	"os/exec"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/test/faults"
)

// BenchmarkStart measures from nothing to a plugin's first answer, in turns with
// go-plugin's own minimal way for the same binary: no checks, no log, its stock
// runner. The metrics are the milliseconds of both and how many times ours takes.
func BenchmarkStart(b *testing.B) {
	cfg := testConfig(b, faults.Good)
	var ours, stock time.Duration
	for b.Loop() {
		began := time.Now()
		p, err := Start(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		mustDo(b, p, "ping")
		ours += time.Since(began)
		if mustDo(b, p, "pid") == "" || p.PID() == 0 { // it is another process that answers
			b.Fatal("no process")
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}

		began = time.Now()
		stop := startStock(b, cfg.Path)
		stock += time.Since(began)
		stop()
	}
	n := float64(b.N)
	b.ReportMetric(ours.Seconds()*1e3/n, "ms/start")
	b.ReportMetric(stock.Seconds()*1e3/n, "ms/go-plugin")
	b.ReportMetric(ours.Seconds()/stock.Seconds(), "x-go-plugin")
	b.ReportMetric(0, "ns/op") // of both together, which says nothing
}

// startStock starts a plugin as go-plugin's documentation does and asks it.
func startStock(b *testing.B, path string) (stop func()) {
	b.Helper()
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolV1: {}},
		Cmd:              exec.Command(path),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
	})
	protocol, err := client.Client()
	if err != nil {
		b.Fatal(err)
	}
	conn := protocol.(*plugin.GRPCClient).Conn
	if _, err := berthv1.NewProviderClient(conn).Stat(b.Context(), &berthv1.StatRequest{Path: []byte("/ping")}); err != nil {
		b.Fatal(err)
	}
	return client.Kill
}
