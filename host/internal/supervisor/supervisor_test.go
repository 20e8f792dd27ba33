package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

func testConfig(t testing.TB, name string) Config {
	return Config{
		Provider:     "test",
		Find:         func() (catalog.Binary, error) { return catalog.Find(name, []string{plugins.Dir}) },
		Configure:    configure,
		Dir:          t.TempDir(),
		Env:          []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + t.TempDir()},
		StartTimeout: time.Minute,
	}
}

func configure(context.Context, catalog.Binary, *berthv1.DescribeResponse) (*berthv1.ConfigureRequest, error) {
	return &berthv1.ConfigureRequest{Provider: "test", Config: []byte("{}")}, nil
}

// supervise makes a supervisor that the test's end shuts down.
func supervise(t testing.TB, cfg Config) *Supervisor {
	t.Helper()
	s := New(cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	return s
}

func acquire(t testing.TB, s *Supervisor) *Instance {
	t.Helper()
	inst, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	t.Cleanup(inst.Release)
	return inst
}

// do makes the plugin do something.
func do(ctx context.Context, inst *Instance, what string) (string, error) {
	resp, err := inst.Client().Stat(ctx, &berthv1.StatRequest{Path: []byte("/" + what)})
	return string(resp.GetInfo().GetTarget()), err
}

func TestAcquireStartsDescribesAndConfigures(t *testing.T) {
	s := supervise(t, testConfig(t, "good"))
	if got := s.Status().State; got != Stopped {
		t.Errorf("before the first call: %s", got)
	}
	inst := acquire(t, s)
	if answer, err := do(t.Context(), inst, "ping"); err != nil || answer != "pong" {
		t.Errorf("ping: %q, %v", answer, err)
	}
	if got := inst.Describe().GetVersion(); got != "1.2.3" {
		t.Errorf("version %q", got)
	}
	if got := inst.Configured().GetFeatures(); len(got) != 1 {
		t.Errorf("features %q", got)
	}
	if st := s.Status(); st.State != Running || st.PID != inst.PID() || st.PID == 0 || st.Calls != 1 || st.Plugin != "good" || st.Protocol != 1 {
		t.Errorf("status %+v", st)
	}
	inst.Release()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after shutdown: %v", err)
	}
	if st := s.Status(); st.State != Closed || st.PID != 0 {
		t.Errorf("status after shutdown %+v", st)
	}
}

type inProcess struct {
	berthv1.UnimplementedProviderServer
}

func (inProcess) Describe(context.Context, *berthv1.DescribeRequest) (*berthv1.DescribeResponse, error) {
	return &berthv1.DescribeResponse{Name: "here"}, nil
}

func (inProcess) Configure(context.Context, *berthv1.ConfigureRequest) (*berthv1.ConfigureResponse, error) {
	return &berthv1.ConfigureResponse{}, nil
}

func TestInProcess(t *testing.T) {
	cfg := testConfig(t, "")
	cfg.Find = nil
	cfg.InProcess = func(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, inProcess{}) }
	s := supervise(t, cfg)
	inst := acquire(t, s)
	if inst.PID() != 0 || inst.Describe().GetName() != "here" {
		t.Errorf("pid %d, %v", inst.PID(), inst.Describe())
	}
	inst.Kill("for the test")
	<-inst.Exited()
	if again := acquire(t, s); again.Describe().GetName() != "here" {
		t.Error("not started again")
	}
}

// TestASetUpTellsThePluginOfNoDeadline, so that it is the host that tells why a
// start was given up.
func TestASetUpTellsThePluginOfNoDeadline(t *testing.T) {
	cfg := testConfig(t, "")
	cfg.Find = nil
	told := make(chan bool, 1)
	cfg.InProcess = func(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, asked{told: told}) }
	acquire(t, supervise(t, cfg))
	if <-told {
		t.Error("the plugin was told of a deadline")
	}
}

type asked struct {
	inProcess
	told chan<- bool
}

func (a asked) Configure(ctx context.Context, _ *berthv1.ConfigureRequest) (*berthv1.ConfigureResponse, error) {
	_, ok := ctx.Deadline()
	a.told <- ok
	return &berthv1.ConfigureResponse{}, nil
}

// TestB7_ASetUpThatFailsIsRedacted whatever kind of status the plugin answers.
func TestB7_ASetUpThatFailsIsRedacted(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.Unknown, codes.Internal} {
		cfg := testConfig(t, "")
		cfg.Find = nil
		cfg.Redact = strings.NewReplacer("s3cret", "[redacted]").Replace
		cfg.InProcess = func(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, repeats{code: code}) }
		_, err := supervise(t, cfg).Acquire(t.Context())
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "[redacted]") {
			t.Errorf("%v: %v", code, err)
		}
	}
}

type repeats struct {
	inProcess
	code codes.Code
}

func (r repeats) Configure(context.Context, *berthv1.ConfigureRequest) (*berthv1.ConfigureResponse, error) {
	return nil, status.Error(r.code, "a key of s3cret is none")
}
