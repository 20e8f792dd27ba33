package observability_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/tracing"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/collector"
)

// embedder is the service whose spans are the host's.
const embedder = "embedder"

// export has this process and its plugins export to a collector.
func export(t *testing.T, protocol string) *collector.Collector {
	t.Helper()
	c := collector.Start(t)
	for name, value := range c.Environment(protocol) {
		t.Setenv(name, value)
	}
	t.Setenv("OTEL_SERVICE_NAME", embedder) // which plugins do not get
	return c
}

// tracer is what exports the spans of this process.
func tracer(t *testing.T) *tracing.Exporter {
	t.Helper()
	exporter, err := tracing.FromEnvironment(t.Context(), tracing.Service{Name: "nobody"})
	if err != nil || exporter == nil {
		t.Fatalf("export traces: %v, %v", exporter, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := exporter.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return exporter
}

// pluginDir is a folder with a plugin that is this binary.
func pluginDir(t testing.TB, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, wire.BinaryPrefix+name)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// open makes a host of one provider, which is named as its plugin, and a workspace.
func open(t testing.TB, plugin string, change func(*host.Config, *host.Provider)) (*host.Host, workspace.Workspace) {
	t.Helper()
	p := host.Provider{Config: map[string]any{"root": t.TempDir()}}
	c := host.Config{PluginDirs: []string{pluginDir(t, plugin)}, DataDir: t.TempDir()}
	change(&c, &p)
	c.Providers = map[string]host.Provider{plugin: p}
	h, err := host.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	ws, err := h.Workspace(plugin)
	if err != nil {
		t.Fatal(err)
	}
	return h, ws
}

func TestOneTraceFromHostToService(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			c := export(t, protocol)
			exporter := tracer(t)
			h, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.TracerProvider = exporter.Provider() })
			ref := request(t, exporter, h, ws)

			const ours, theirs, call = embedder + ":", wire.BinaryPrefix + current + ":", "berth.v1.Provider/"
			c.Await(t, ours+"request", ours+"write "+current, ours+"create "+current, ours+call+"Create", theirs+call+"Create")
			c.Await(t, ours+"request", ours+"write "+current, ours+call+"WriteFile", theirs+call+"WriteFile")
			c.Await(t, ours+"request", ours+"run "+current, ours+call+"Run", theirs+call+"Run")
			c.Await(t, ours+"request", ours+"destroy "+current, ours+call+"Destroy", theirs+call+"Destroy")
			service := c.Await(t, ours+"request", ours+"stat "+current, ours+call+"Stat", theirs+call+"Stat", theirs+"call ")
			if got := service.GetStatus().GetMessage(); got != "refused: " {
				t.Errorf("the provider's own span: status %q", got)
			}
			// A start is for all, and so in a trace of its own.
			start := c.Await(t, ours+"start_plugin "+current)
			if len(start.GetParentSpanId()) > 0 {
				t.Error("the plugin's start is in the trace of the call that happened to be the first")
			}
			c.Await(t, ours+"start_plugin "+current, ours+call+"Configure", theirs+call+"Configure")

			for name, want := range map[string]map[string]int64{
				"write": {"berth.bytes.in": 7}, "run": {"berth.bytes.in": 2, "berth.bytes.out": 2, "process.exit.code": 3}, "destroy": nil, "stat": nil,
			} {
				s := c.Await(t, ours+name+" "+current)
				if s.Text("berth.provider") != current || s.Text("berth.operation") != name || s.Text("berth.workspace") != ref.String() {
					t.Errorf("%s: attributes %v", name, s.GetAttributes())
				}
				for key, n := range want {
					if got := s.Number(key); got != n {
						t.Errorf("%s: %s is %d, want %d", name, key, got, n)
					}
				}
			}
		})
	}
}

// request does several things below one span of its own.
func request(t *testing.T, exporter *tracing.Exporter, h *host.Host, ws workspace.Workspace) workspace.Ref {
	t.Helper()
	ctx, root := exporter.Tracer("test").Start(t.Context(), "request")
	defer root.End()
	if err := ws.WriteFile(ctx, nested, []byte("1234567")); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Stat(ctx, nested); err != nil {
		t.Fatal(err)
	}
	res, err := ws.Run(ctx, workspace.Command{Script: "cat; exit 3", Stdin: strings.NewReader("in")})
	if err != nil || res.ExitCode != 3 {
		t.Fatalf("run: %v, %v", res, err)
	}
	ref, _ := ws.Ref()
	if err := h.Destroy(ctx, ref); err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestNamesThatAreNotUTF8 would lose the whole batch that such a name is in.
func TestNamesThatAreNotUTF8(t *testing.T) {
	c := export(t, "grpc")
	exporter := tracer(t)
	_, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.TracerProvider = exporter.Provider() })
	if err := ws.MkdirAll(t.Context(), "a\xff"); err != nil {
		t.Fatal(err)
	}
	if got := c.Await(t, embedder+":mkdir "+current).Text("file.path"); got != "a\uFFFD" {
		t.Errorf("file.path is %q", got)
	}
}

// TestPluginOfAnOlderSDK adds nothing, and loses nothing either.
func TestPluginOfAnOlderSDK(t *testing.T) {
	c := export(t, "grpc")
	exporter := tracer(t)
	h, ws := open(t, older, func(c *host.Config, _ *host.Provider) { c.TracerProvider = exporter.Provider() })
	request(t, exporter, h, ws)
	c.Await(t, embedder+":request", embedder+":destroy "+older, embedder+":berth.v1.Provider/Destroy")
	if strings.Contains(c.Raw(), wire.BinaryPrefix+older) {
		t.Error("the older plugin exports spans: it is no older one")
	}
}

// TestNothingIsExportedUnasked: a plugin is as quiet as its environment.
func TestNothingIsExportedUnasked(t *testing.T) {
	for _, off := range []string{"OTEL_SDK_DISABLED=true", "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT="} {
		t.Run(off, func(t *testing.T) {
			c := export(t, "grpc")
			name, value, _ := strings.Cut(off, "=")
			t.Setenv(name, value)
			h, ws := open(t, current, func(*host.Config, *host.Provider) {})
			if err := ws.WriteFile(t.Context(), "a", nil); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err != nil { // which would have the plugin tell the rest
				t.Fatal(err)
			}
			if raw := c.Raw(); raw != "" {
				t.Errorf("it was: %s", raw)
			}
		})
	}
}

// TestDeadCollector: neither a call nor the end waits for one.
func TestDeadCollector(t *testing.T) {
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // and nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, address := range map[string]string{"refuses": "127.0.0.1:1", "is silent": silent.Addr().String()} {
		for _, protocol := range []string{"grpc", "http/protobuf"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				export(t, protocol)
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
				var log lines
				h, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.Logger = log.logger(hclog.Debug) })
				slowest := time.Duration(0)
				for i := range 50 {
					began := time.Now()
					if err := ws.WriteFile(t.Context(), "a", nil); err != nil {
						t.Fatal(err)
					}
					if i > 0 { // the plugin is started
						slowest = max(slowest, time.Since(began))
					}
				}
				if slowest > exportTimeout/2 {
					t.Errorf("a call took %v, as if it had waited for the collector", slowest)
				}
				began := time.Now()
				if err := h.Close(); err != nil {
					t.Fatal(err)
				}
				t.Logf("slowest call %v, end %v", slowest, time.Since(began))
				if name == "refuses" && protocol != "grpc" { // that is given up at once
					log.await(t, "exporting traces, which are dropped")
					return
				}
				// One that does not end by itself in time is killed: what it says last
				// tells that it was not.
				log.await(t, "the last traces were not taken")
			})
		}
	}
}

// exportTimeout is OpenTelemetry's own for handing over spans.
const exportTimeout = 10 * time.Second
