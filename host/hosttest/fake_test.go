package hosttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newWorkspace(t *testing.T, fake *hosttest.Fake, opts ...workspace.Option) workspace.Workspace {
	t.Helper()
	ws, err := fake.Workspace("docker", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

func TestFakeFiles(t *testing.T) {
	ws := newWorkspace(t, new(hosttest.Fake))
	ctx := t.Context()
	for name, data := range map[string]string{"a.txt": "alpha", "dir/b.txt": "beta", "dir/sub/c": ""} {
		if err := ws.WriteFile(ctx, name, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := fstest.TestFS(noLinks{ws.FS(ctx)}, "a.txt", "dir/b.txt", "dir/sub/c"); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		call func() error
		want error
	}{
		"a missing file":      {func() error { _, err := ws.ReadFile(ctx, "none"); return err }, fs.ErrNotExist},
		"below a file":        {func() error { _, err := ws.Stat(ctx, "a.txt/x"); return err }, syscall.ENOTDIR},
		"reading a folder":    {func() error { _, err := ws.ReadFile(ctx, "dir"); return err }, syscall.EISDIR},
		"listing a file":      {func() error { _, err := ws.ReadDir(ctx, "a.txt"); return err }, syscall.ENOTDIR},
		"writing a folder":    {func() error { return ws.WriteFile(ctx, "dir", nil) }, syscall.EISDIR},
		"writing below one":   {func() error { return ws.WriteFile(ctx, "a.txt/b/c", nil) }, syscall.ENOTDIR},
		"a folder over one":   {func() error { return ws.MkdirAll(ctx, "a.txt") }, fs.ErrExist},
		"an exclusive write":  {func() error { _, err := ws.Create(ctx, "a.txt", workspace.WriteOptions{Exclusive: true}); return err }, fs.ErrExist},
		"removing everything": {func() error { return ws.Remove(ctx, ".") }, workspace.ErrInvalid},
		"removing nothing":    {func() error { return ws.Remove(ctx, "none") }, fs.ErrNotExist},
		"renaming into it":    {func() error { return ws.Rename(ctx, "dir", "dir/x") }, syscall.EINVAL},
		"a link":              {func() error { return ws.Symlink(ctx, "a", "b") }, errors.ErrUnsupported},
		"no path":             {func() error { _, err := ws.Stat(ctx, ""); return err }, workspace.ErrInvalid},
	} {
		if err := test.call(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	if err := ws.Rename(ctx, "dir", "moved"); err != nil {
		t.Error(err)
	}
	if data, err := ws.ReadFile(ctx, "/work/moved/sub/../b.txt"); err != nil || string(data) != "beta" {
		t.Errorf("%q, %v", data, err)
	}
	r, err := ws.Open(ctx, "a.txt", workspace.ReadOptions{Offset: 1, Length: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.WriteFile(ctx, "a.txt", []byte("XXXXXXX")); err != nil {
		t.Error(err)
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != "lph" {
		t.Errorf("%q, %v", data, err)
	}
	if err := ws.RemoveAll(ctx, "moved"); err != nil {
		t.Error(err)
	}
	if err := ws.RemoveAll(ctx, "moved"); err != nil {
		t.Error(err)
	}
}

// noLinks hides that the file system could read links, of which a fake has none.
type noLinks struct{ fs.FS }

func TestFakeLife(t *testing.T) {
	var fake hosttest.Fake
	ctx := t.Context()
	ws := newWorkspace(t, &fake, workspace.WithName("conv"), workspace.WithLabels(map[string]string{"a": "b"}))
	if _, ok := ws.Ref(); ok {
		t.Error("a ref before the first operation")
	}
	if err := ws.WriteFile(ctx, "f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	ref, _ := ws.Ref()
	again, err := fake.Attach(ref)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := again.ReadFile(ctx, "f"); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	var listed []workspace.Ref
	for info, err := range fake.List(ctx, "docker", workspace.ListOptions{Labels: map[string]string{"a": "b"}}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, info.Ref)
	}
	if len(listed) != 1 || listed[0] != ref {
		t.Errorf("%v", listed)
	}
	if err := fake.Destroy(ctx, ref); err != nil {
		t.Error(err)
	}
	for _, handle := range []workspace.Workspace{ws, again} {
		if _, err := handle.ReadFile(ctx, "f"); !errors.Is(err, workspace.ErrUnavailable) {
			t.Error(err)
		}
	}
}

func TestFakeCommands(t *testing.T) {
	var fake hosttest.Fake
	ctx := t.Context()
	ws := newWorkspace(t, &fake)
	fake.On(hosttest.Reply{Stdout: "begun", Hang: true}, "sleep")
	fake.On(hosttest.Reply{Stdout: "out", Stderr: "err", ExitCode: 3}, "x")

	var out bytes.Buffer
	res, err := ws.Run(ctx, workspace.Command{Args: []string{"x", "y"}, Stdout: &out})
	if err != nil || res.ExitCode != 3 || out.String() != "out" || string(res.Stderr) != "err" {
		t.Errorf("%+v, %v", res, err)
	}
	res, err = ws.Run(ctx, workspace.Command{Args: []string{"unknown"}})
	if err != nil || res.ExitCode != workspace.ExitNotFound {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = ws.Run(ctx, workspace.Command{Args: []string{"sleep", "9"}, Timeout: time.Millisecond})
	var timeout *workspace.TimeoutError
	if !errors.As(err, &timeout) || string(timeout.Stdout) != "begun" {
		t.Error(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	p, err := ws.Start(canceled, workspace.Command{Args: []string{"sleep", "9"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p, err = ws.Start(ctx, workspace.Command{Args: []string{"sleep", "9"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(ctx, workspace.SignalTerminate); err != nil {
		t.Error(err)
	}
	if res, err := p.Wait(); err != nil || res.ExitCode != 143 {
		t.Errorf("%+v, %v", res, err)
	}
	if err := p.Signal(ctx, workspace.SignalTerminate); !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	if _, err := ws.Run(ctx, workspace.Command{}); !errors.Is(err, workspace.ErrInvalid) {
		t.Error(err)
	}
	if n := len(fake.Commands()); n != 5 {
		t.Errorf("%d commands", n)
	}
}

// plain is the least that New can serve.
type plain struct {
	berthv1.UnimplementedProviderServer
}

func (p plain) Register(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, p) }

func (plain) Describe(context.Context, *berthv1.DescribeRequest) (*berthv1.DescribeResponse, error) {
	return &berthv1.DescribeResponse{Name: "plain"}, nil
}

func (plain) Configure(context.Context, *berthv1.ConfigureRequest) (*berthv1.ConfigureResponse, error) {
	return &berthv1.ConfigureResponse{}, nil
}

func TestNewServesInProcess(t *testing.T) {
	h := hosttest.New(t, map[string]hosttest.Registrar{"a": plain{}, "b": plain{}})
	if st, err := h.Check(t.Context(), "a"); err != nil || st.State != "running" {
		t.Errorf("%+v, %v", st, err)
	}
	ws, err := h.Workspace("b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Stat(t.Context(), "f"); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
