package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

const (
	// pluginTestEnv makes the test binary a plugin; its value is a kind of it.
	pluginTestEnv = "BERTH_SDK_TEST_PLUGIN"
	// markerEnv names a file that the plugin's provider makes when it is closed.
	markerEnv = "BERTH_SDK_TEST_MARKER"
	// fastExit spares plugins that are built with -race a second at their exit.
	fastExit = "GORACE=atexit_sleep_ms=0"
)

// rawStdout is descriptor 1 whatever becomes of os.Stdout.
var rawStdout = os.NewFile(1, "descriptor 1")

// probe is a workspace in a plugin process that does what the path says.
type probe struct {
	*memory
	log hclog.Logger
}

func (p probe) RealPath(ctx context.Context, path string) (string, error) {
	name, argument, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch name {
	case "getenv":
		return os.Getenv(argument), nil
	case "print":
		fmt.Println("printed by fmt")
		if _, err := rawStdout.WriteString("printed raw\n"); err != nil {
			return "", err
		}
		for range 10 {
			fmt.Println(strings.Repeat("x", 70<<10))
		}
		return "printed", nil
	case "log":
		p.log.Info("a line of the log", "with", argument)
		return "logged", nil
	case "exec":
		out, err := exec.CommandContext(ctx, "/bin/sh", "-c", argument).CombinedOutput()
		return string(out), err
	case "sleep":
		d, err := time.ParseDuration(argument)
		if err != nil {
			return "", err
		}
		p.log.Info("sleeping for " + argument)
		time.Sleep(d) // whatever its context says
		return "slept", nil
	case "panic":
		panic("on purpose: " + argument)
	}
	return "", errors.New("unknown order " + path)
}

func servePluginForTest() {
	kind := os.Getenv(pluginTestEnv)
	Serve(Plugin[testConfig]{
		Name: "fake", Version: "1.2.3", Workspace: probe{}, Environment: []string{"FAKE_*", "EXACT"},
		Companions: []string{"fake-helper"},
		New: func(_ context.Context, _ testConfig, env Env) (Provider, error) {
			provider := providing(probe{newMemory(), env.Logger})
			marker := os.Getenv(markerEnv)
			if os.Getenv("FAKE_SET") != "" {
				env.Logger.Info("New saw FAKE_SET")
			}
			provider.closed = func() error {
				if kind == "hangs" {
					time.Sleep(time.Minute)
				}
				return os.WriteFile(marker, []byte("closed"), 0o600)
			}
			return provider, nil
		},
	})
}

// clientPlugin is go-plugin's client for the tests.
type clientPlugin struct {
	plugin.NetRPCUnsupportedPlugin
}

func (clientPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error { return errors.New("no") }
func (clientPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return berthv1.NewProviderClient(conn), nil
}

// syncBuffer can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pluginProcess is this test binary as a plugin, with a lifeline.
type pluginProcess struct {
	berthv1.ProviderClient
	cmd      *exec.Cmd
	client   *plugin.Client
	stderr   *syncBuffer
	lifeline *os.File
	marker   string
	sockets  string
}

func startPlugin(t *testing.T, kind string, env ...string) *pluginProcess {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "sdk") //nolint:usetesting // short: it is for sockets
	if err != nil {
		t.Fatal(err)
	}
	p := &pluginProcess{
		cmd: exec.Command(self), stderr: &syncBuffer{}, lifeline: ours,
		marker: filepath.Join(t.TempDir(), "closed"), sockets: sockets,
	}
	p.cmd.Env = append(env,
		"PATH="+os.Getenv("PATH"), "TMPDIR="+sockets,
		fastExit, pluginTestEnv+"="+kind, markerEnv+"="+p.marker, wire.LifelineEnv+"=3",
	)
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.client = plugin.NewClient(&plugin.ClientConfig{
		Cmd: p.cmd, HandshakeConfig: wire.Handshake(), SkipHostEnv: true,
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolV1: {wire.PluginName: clientPlugin{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Stderr:           p.stderr, Logger: hclog.NewNullLogger(), StartTimeout: testTimeout,
		GRPCDialOptions: wire.DialOptions(),
	})
	t.Cleanup(func() {
		p.client.Kill()
		_ = ours.Close()
		_ = os.RemoveAll(sockets)
	})
	protocol, err := p.client.Client()
	_ = theirs.Close()
	if err != nil {
		t.Fatalf("starting the plugin: %v; its stderr: %s", err, p.stderr)
	}
	raw, err := protocol.Dispense(wire.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	p.ProviderClient = raw.(berthv1.ProviderClient)
	_, err = p.Configure(t.Context(), &berthv1.ConfigureRequest{
		Provider: "test", Config: []byte(`{"token":"hunter2-hunter2"}`),
		Environment: []*berthv1.EnvVar{{Name: []byte("FAKE_SET"), Value: []byte("conventional")}},
	})
	if err != nil {
		t.Fatalf("configure: %v", err)
	}
	return p
}

// order makes the probe do something.
func (p *pluginProcess) order(ctx context.Context, what string) (string, error) {
	answer, err := p.RealPath(ctx, &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte("/" + what)})
	return string(answer.GetPath()), fromCall(err)
}

func (p *pluginProcess) mustOrder(t *testing.T, what string) string {
	t.Helper()
	answer, err := p.order(t.Context(), what)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return answer
}

// gone waits for the process to end.
func (p *pluginProcess) gone(t *testing.T) {
	t.Helper()
	eventually(t, "the plugin ends", p.client.Exited)
}

func (p *pluginProcess) closed() bool {
	text, err := os.ReadFile(p.marker)
	return err == nil && string(text) == "closed"
}

func TestServeKeepsStdoutClean(t *testing.T) {
	p := startPlugin(t, "plain")
	for range 3 {
		if got := p.mustOrder(t, "print"); got != "printed" {
			t.Fatalf("answer %q", got)
		}
	}
	eventually(t, "what is printed arrives on stderr", func() bool {
		text := p.stderr.String()
		return strings.Count(text, "printed by fmt") == 3 && strings.Count(text, "printed raw") == 3 &&
			strings.Count(text, strings.Repeat("x", 70<<10)) == 30
	})
}

func TestServeLogsJSONWithoutSecrets(t *testing.T) {
	p := startPlugin(t, "plain")
	p.mustOrder(t, "log/a hunter2-hunter2 b")
	record := map[string]any{}
	eventually(t, "the line", func() bool {
		for line := range strings.Lines(p.stderr.String()) {
			if strings.Contains(line, "a line of the log") {
				return json.Unmarshal([]byte(line), &record) == nil
			}
		}
		return false
	})
	if record["@level"] != "info" || record["with"] != "a [redacted] b" || record["provider"] != "test" {
		t.Errorf("record %v", record)
	}
	if _, err := p.order(t.Context(), "panic/hunter2-hunter2"); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "panic in RealPath: on purpose: [redacted]") {
		t.Errorf("a panic became %v", err)
	}
	eventually(t, "the stack", func() bool { return strings.Contains(p.stderr.String(), "probe.RealPath") })
	if strings.Contains(p.stderr.String(), "hunter2") {
		t.Errorf("the log tells a secret: %s", p.stderr)
	}
	if got := p.mustOrder(t, "getenv/EXACT"); got != "" { // it lives
		t.Errorf("EXACT is %q", got)
	}
}

func TestServeAppliesConventionalEnvironmentBeforeNew(t *testing.T) {
	p := startPlugin(t, "plain")
	if got := p.mustOrder(t, "getenv/FAKE_SET"); got != "conventional" {
		t.Errorf("FAKE_SET is %q", got)
	}
	eventually(t, "New's line", func() bool { return strings.Contains(p.stderr.String(), "New saw FAKE_SET") })
}

func TestServeLeavesNothingOfTheHandshakeToChildren(t *testing.T) {
	p := startPlugin(t, "plain")
	env := p.mustOrder(t, "exec/env")
	for _, name := range []string{wire.LifelineEnv, wire.Handshake().MagicCookieKey, "PLUGIN_"} {
		if strings.Contains(env, name) {
			t.Errorf("a child sees %s: %s", name, env)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	pipe, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", p.lifeline.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if fds := p.mustOrder(t, "exec/ls -l /proc/self/fd"); !strings.Contains(fds, "-> ") || strings.Contains(fds, pipe) {
		t.Errorf("a child has the lifeline %s: %s", pipe, fds)
	}
}

func TestServeOutlivesInterruptsAndChildrenDoNotInheritThat(t *testing.T) {
	p := startPlugin(t, "plain")
	for range 3 {
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		p.mustOrder(t, "getenv/PATH")
	}
	if got, err := p.order(t.Context(), "exec/kill -INT $$; echo alive"); err == nil || !strings.Contains(err.Error(), "signal: interrupt") {
		t.Errorf("a child that interrupts itself: %q, %v", got, err)
	}
}

func TestServeEndsAtTermAfterCallsUnderWay(t *testing.T) {
	p := startPlugin(t, "plain")
	done := make(chan error, 1)
	go func() {
		_, err := p.order(context.Background(), "sleep/500ms")
		done <- err
	}()
	eventually(t, "the call is under way", func() bool { return strings.Contains(p.stderr.String(), "sleeping for 500ms") })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	p.gone(t)
	if !p.closed() {
		t.Error("the provider was not closed")
	}
	if left, err := os.ReadDir(p.sockets); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestServeEndsWhenTheHostSaysSo(t *testing.T) {
	p := startPlugin(t, "plain")
	p.client.Kill() // go-plugin's: Shutdown, and SIGKILL two seconds later
	if !p.closed() {
		t.Error("the provider was not closed")
	}
}

func TestB4_ServeEndsWithItsHost(t *testing.T) {
	for _, kind := range []string{"plain", "hangs"} {
		t.Run(kind, func(t *testing.T) {
			p := startPlugin(t, kind)
			var calls sync.WaitGroup
			calls.Go(func() { _, _ = p.order(context.Background(), "sleep/1m") })
			eventually(t, "the call is under way", func() bool { return strings.Contains(p.stderr.String(), "sleeping for 1m") })
			begin := time.Now()
			if err := p.lifeline.Close(); err != nil {
				t.Fatal(err)
			}
			p.gone(t)
			// Two seconds are promised; a busy machine starts late what is due.
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("it took %v, contract B4 gives 2s", took)
			}
			if kind == "plain" && !p.closed() {
				t.Error("the provider was not closed")
			}
			calls.Wait()
		})
	}
}

// startBare runs this binary as a plugin without a host.
func startBare(t *testing.T, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append([]string{fastExit, pluginTestEnv + "=plain"}, env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func TestServeByHand(t *testing.T) {
	schema, err := Schema[testConfig]()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args           []string
		stdout, stderr string
		status         int
	}{
		{args: nil, stderr: "berth-provider-fake 1.2.3 is a plugin of Berth", status: 2},
		{args: []string{"serve"}, stderr: "is a plugin of Berth", status: 2},
		{args: []string{"--help"}, stdout: "is a plugin of Berth", status: 0},
		{args: []string{"--version"}, stdout: "berth-provider-fake 1.2.3 (protocol 1)\n", status: 0},
		{args: []string{"--schema"}, stdout: `"x-berth-per-workspace": true`, status: 0},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			out, errOut, status := startBare(t, nil, test.args...)
			if !strings.Contains(out, test.stdout) || !strings.Contains(errOut, test.stderr) || status != test.status {
				t.Errorf("stdout %q, stderr %q, status %d", out, errOut, status)
			}
			if (test.stdout == "") != (out == "") || (test.stderr == "") != (errOut == "") {
				t.Errorf("on the wrong stream: stdout %q, stderr %q", out, errOut)
			}
		})
	}
	out, _, _ := startBare(t, nil, "--schema")
	var printed, want bytes.Buffer
	if json.Compact(&printed, []byte(out)) != nil || json.Compact(&want, schema) != nil || printed.String() != want.String() {
		t.Errorf("--schema prints %s", out)
	}
}

func TestServeRefusesABrokenLifeline(t *testing.T) {
	cookie := wire.Handshake().MagicCookieKey + "=" + wire.Handshake().MagicCookieValue
	for _, value := range []string{"", "x", "-1", "1", "2147483647", "99999999999"} {
		out, errOut, status := startBare(t, []string{cookie, wire.LifelineEnv + "=" + value})
		if out != "" || status != 1 || !strings.Contains(errOut, "holding the lifeline") || !strings.Contains(errOut, wire.LifelineEnv) {
			t.Errorf("%s=%q: stdout %q, stderr %q, status %d", wire.LifelineEnv, value, out, errOut, status)
		}
	}
}

// A host of go-plugin's own kind, with certificates, works as well.
func TestServeSpeaksMutualTLS(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), pluginTestEnv+"=plain")
	client := plugin.NewClient(&plugin.ClientConfig{
		Cmd: cmd, HandshakeConfig: wire.Handshake(), AutoMTLS: true,
		VersionedPlugins: map[int]plugin.PluginSet{wire.ProtocolV1: {wire.PluginName: clientPlugin{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Stderr:           io.Discard, Logger: hclog.NewNullLogger(), StartTimeout: testTimeout,
	})
	defer client.Kill()
	protocol, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := protocol.Dispense(wire.PluginName)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := raw.(berthv1.ProviderClient).Describe(t.Context(), &berthv1.DescribeRequest{})
	if err != nil || answer.GetName() != "fake" || answer.GetVersion() != "1.2.3" || !slices.Equal(answer.GetCompanions(), []string{"fake-helper"}) {
		t.Errorf("describe: %v, %v", answer, err)
	}
}
