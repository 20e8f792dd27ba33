package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestMain(m *testing.M) {
	posix.Main()
	if os.Getenv(sdk.PluginTestEnv) != "" {
		sdk.ServePluginForTest()
	}
	goleak.VerifyTestMain(m)
}

// folder is a provider of one workspace: a folder of this machine.
type folder struct {
	dir string
}

func (f folder) open() (sdk.Workspace, error) {
	return posix.Open(posix.Config{Dir: f.dir, ID: "ws", Incarnation: "1", Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}})
}
func (f folder) Create(context.Context, sdk.CreateRequest) (sdk.Workspace, error) { return f.open() }
func (f folder) Attach(context.Context, string) (sdk.Workspace, error)            { return f.open() }
func (f folder) Destroy(context.Context, string) error                            { return nil }

// stoppable hands over what Register gives to OnStop.
type stoppable struct {
	*grpc.Server
	stop func()
}

func (s *stoppable) OnStop(stop func()) { s.stop = stop }

func serveFolder(t *testing.T, dir string) berthv1.ProviderClient {
	t.Helper()
	type none struct{}
	plugin := sdk.Plugin[none]{Name: "folder", New: func(context.Context, none, sdk.Env) (sdk.Provider, error) { return folder{dir}, nil }}
	server := &stoppable{Server: grpc.NewServer(wire.ServerOptions()...)}
	plugin.Register(server)
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	options := append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })}, wire.DialOptions()...)
	conn, err := grpc.NewClient("passthrough:folder", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.stop()
		server.Stop()
		<-served
	})
	client := berthv1.NewProviderClient(conn)
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "folder"}); err != nil {
		t.Fatal(err)
	}
	return client
}

type result struct {
	stdout, stderr []byte
	code           int
	err            error
}

// run runs a script and takes its output as it comes.
func run(t *testing.T, client berthv1.ProviderClient, start *berthv1.RunStart, stdin ...string) (r result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := client.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	start.Workspace, start.RunId, start.Stdin = &berthv1.WorkspaceKey{Id: "ws"}, strings.TrimPrefix(workspace.NewToken(), "berth-"), len(stdin) > 0
	send := func(m *berthv1.RunRequest) {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: start}})
	var offset int64
	for _, data := range stdin {
		send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Stdin{Stdin: &berthv1.RunStdin{Offset: offset, Data: []byte(data)}}})
		offset += int64(len(data))
	}
	if start.Stdin {
		send(&berthv1.RunRequest{Message: &berthv1.RunRequest_StdinEnd{StdinEnd: &berthv1.RunStdinEnd{Offset: offset}}})
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("the stream ended without an outcome: %v", err)
		}
		r.stdout = append(r.stdout, m.GetStdout().GetData()...)
		r.stderr = append(r.stderr, m.GetStderr().GetData()...)
		send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &berthv1.RunTaken{StdoutOffset: int64(len(r.stdout)), StderrOffset: int64(len(r.stderr))}}})
		if outcome := m.GetOutcome(); outcome != nil {
			if detail := outcome.GetError(); detail != nil {
				r.err = wire.FromDetail(detail)
			}
			r.code = int(outcome.GetExited().GetCode())
			return r
		}
	}
}

// The run loop with real processes.
func TestCommandsOfThisMachine(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no commands there")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client := serveFolder(t, dir)
	script := func(text string) *berthv1.RunStart { return &berthv1.RunStart{Script: []byte(text)} }

	if r := run(t, client, script("pwd; echo err >&2; exit 3")); r.code != 3 || r.err != nil || string(r.stdout) != dir+"\n" || string(r.stderr) != "err\n" {
		t.Errorf("%+v", r)
	}
	const size = 5 << 20
	if r := run(t, client, script("head -c 5242880 /dev/zero; head -c 5242880 /dev/zero >&2")); r.code != 0 || r.err != nil || len(r.stdout) != size || len(r.stderr) != size {
		t.Errorf("code %d, error %v, %d and %d bytes", r.code, r.err, len(r.stdout), len(r.stderr))
	}
	input := bytes.Repeat([]byte("0123456789\xff\x00"), 10_000)
	if r := run(t, client, script("cat"), string(input), "end"); r.err != nil || string(r.stdout) != string(input)+"end" {
		t.Errorf("cat gave %d bytes, error %v", len(r.stdout), r.err)
	}
	if r := run(t, client, script("cat")); r.err != nil || r.code != 0 || len(r.stdout) > 0 {
		t.Errorf("cat without stdin: %+v", r)
	}
	if r := run(t, client, &berthv1.RunStart{Args: [][]byte{[]byte("no-such-program")}}); r.err != nil || r.code != workspace.ExitNotFound {
		t.Errorf("a program that is not there: %+v", r)
	}
	// The child holds the output until it is told to end.
	if r := run(t, client, script("(while ! [ -e stop ]; do sleep 0.1; done &) ; echo done")); r.err != nil || r.code != 0 || string(r.stdout) != "done\n" {
		t.Errorf("with a child in the background: %+v", r)
	}
	if r := run(t, client, script("touch stop")); r.err != nil {
		t.Errorf("%+v", r)
	}
	stopped := script("echo begun; sleep 600 & sleep 601")
	stopped.TimeoutNs = int64(500 * time.Millisecond)
	r := run(t, client, stopped)
	var timeout *workspace.TimeoutError
	if !errors.As(r.err, &timeout) || timeout.Survivors != "" || string(r.stdout) != "begun\n" {
		t.Errorf("%+v", r)
	}
	flood := script("yes")
	flood.OutputLimit = 1000
	r = run(t, client, flood)
	var limit *workspace.OutputLimitError
	if !errors.As(r.err, &limit) || len(r.stdout) != 1000 {
		t.Errorf("%d bytes, error %v", len(r.stdout), r.err)
	}
	missing := script("true")
	missing.Dir = []byte("no/such")
	if r := run(t, client, missing); !errors.Is(r.err, os.ErrNotExist) || !strings.Contains(r.err.Error(), " no/such:") {
		t.Errorf("in a missing directory: %v", r.err)
	}
}
