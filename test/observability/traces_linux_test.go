package observability_test

import (
	"bytes"
	"context"
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
)

// embedder is the service whose spans are the host's.
const embedder = "embedder"

// export has this process and its plugins export to an address, soon.
func export(t *testing.T, address string) {
	t.Helper()
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_SERVICE_NAME": embedder,
	} {
		t.Setenv(name, value)
	}
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
func pluginDir(t *testing.T, name string) string {
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
func open(t *testing.T, plugin string, change func(*host.Config, *host.Provider)) (*host.Host, workspace.Workspace) {
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

// child checks that a span is another's child, in one trace with it.
func child(t *testing.T, s, parent *span) {
	t.Helper()
	if !bytes.Equal(s.GetTraceId(), parent.GetTraceId()) || !bytes.Equal(s.GetParentSpanId(), parent.GetSpanId()) {
		t.Errorf("span %s of %s is no child of %s of %s: trace %x, parent %x; want %x, %x", s.GetName(), s.service, parent.GetName(), parent.service,
			s.GetTraceId(), s.GetParentSpanId(), parent.GetTraceId(), parent.GetSpanId())
	}
}

func TestOneTraceFromHostToService(t *testing.T) {
	c, address := startCollector(t)
	export(t, address)
	exporter := tracer(t)
	h, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.TracerProvider = exporter.Provider() })

	ctx, root := exporter.Tracer("test").Start(t.Context(), "request")
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
	root.End()

	plugin, request := wire.BinaryPrefix+current, c.await(t, embedder, "request")
	call := func(name, method string) *span {
		t.Helper()
		operation := c.await(t, embedder, name+" "+current)
		calls := c.childOf(t, embedder, operation, "berth.v1.Provider/"+method)
		served := c.childOf(t, plugin, calls, "berth.v1.Provider/"+method)
		if operation.attr("berth.provider") != current || operation.attr("berth.workspace") != ref.String() {
			t.Errorf("%s: attributes %v", name, operation.GetAttributes())
		}
		return served
	}
	write := c.await(t, embedder, "write "+current)
	child(t, write, request)
	child(t, c.await(t, embedder, "create "+current), write)
	call("create", "Create")
	call("write", "WriteFile")
	service := c.childOf(t, plugin, call("stat", "Stat"), "call ")
	if got := service.GetStatus().GetMessage(); got != "refused: " {
		t.Errorf("the provider's own span: status %q", got)
	}
	call("run", "Run")
	call("destroy", "Destroy")
	for name, want := range map[string]map[string]int64{
		"write": {"berth.bytes.in": 7}, "run": {"berth.bytes.in": 2, "berth.bytes.out": 2, "process.exit.code": 3},
	} {
		s := c.await(t, embedder, name+" "+current)
		child(t, s, request)
		for key, n := range want {
			if got := number(s, key); got != n {
				t.Errorf("%s: %s is %d, want %d", name, key, got, n)
			}
		}
	}
	// A start is for all, and so in a trace of its own.
	start := c.await(t, embedder, "start_plugin "+current)
	if bytes.Equal(start.GetTraceId(), request.GetTraceId()) {
		t.Error("the plugin's start is in the trace of the call that happened to be the first")
	}
	c.childOf(t, plugin, c.childOf(t, embedder, start, "berth.v1.Provider/Configure"), "berth.v1.Provider/Configure")
}

func number(s *span, key string) int64 {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetIntValue()
		}
	}
	return -1
}

// childOf awaits a service's span of a name below another.
func (c *theCollector) childOf(t *testing.T, service string, parent *span, name string) (found *span) {
	t.Helper()
	waitFor(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if s.service == service && s.GetName() == name && bytes.Equal(s.GetParentSpanId(), parent.GetSpanId()) && bytes.Equal(s.GetTraceId(), parent.GetTraceId()) {
				found = s
				return true
			}
		}
		return false
	}, func() string { return "no span " + name + " of " + service + " below " + parent.GetName() })
	return found
}

// TestNamesThatAreNotUTF8 would lose the whole batch that such a name is in.
func TestNamesThatAreNotUTF8(t *testing.T) {
	c, address := startCollector(t)
	export(t, address)
	exporter := tracer(t)
	_, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.TracerProvider = exporter.Provider() })
	if err := ws.MkdirAll(t.Context(), "a\xff"); err != nil {
		t.Fatal(err)
	}
	if got := c.await(t, embedder, "mkdir "+current).attr("file.path"); got != "a\uFFFD" {
		t.Errorf("file.path is %q", got)
	}
}

// TestDeadCollector: neither a call nor the end waits for one.
func TestDeadCollector(t *testing.T) {
	export(t, "http://127.0.0.1:1")
	var log lines
	h, ws := open(t, current, func(c *host.Config, _ *host.Provider) { c.Logger = log.logger(hclog.Debug) })
	slowest := time.Duration(0)
	for range 50 {
		began := time.Now()
		if err := ws.WriteFile(t.Context(), "a", nil); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
	}
	began := time.Now()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("slowest call, the first with the plugin's start: %v; end: %v", slowest, took)
	// A plugin that does not end by itself is killed after two seconds; what it
	// says at its end tells that it was not.
	log.await(t, "the last traces were not taken")
}
