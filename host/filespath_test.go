package host_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestF4_AListingIsCompleteAndSortedOrAnError(t *testing.T) {
	entries := func(end bool, names ...string) *berthv1.ReadDirResponse {
		resp := &berthv1.ReadDirResponse{End: end}
		for _, name := range names {
			resp.Entries = append(resp.Entries, &berthv1.FileInfo{Name: []byte(name), Mode: 0o100644})
		}
		return resp
	}
	list := func(responses ...*berthv1.ReadDirResponse) *raw {
		return &raw{readDir: func(stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
			for _, r := range responses {
				if err := stream.Send(r); err != nil {
					return err
				}
			}
			return nil
		}}
	}
	got, err := newWorkspace(t, list(entries(false, "a\nb", "a\xff"), entries(true, "b"))).ReadDir(t.Context(), ".")
	if err != nil || len(got) != 3 || got[1].Name != "a\xff" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, responses := range map[string][]*berthv1.ReadDirResponse{
		"no end":          {entries(false, "a")},
		"unsorted":        {entries(false, "b"), entries(true, "a")},
		"twice":           {entries(true, "a", "a")},
		"a way out":       {entries(true, "..")},
		"a path":          {entries(true, "a/b")},
		"an empty name":   {entries(true, "")},
		"a name with NUL": {entries(true, "a\x00")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newWorkspace(t, list(responses...)).ReadDir(t.Context(), ".")
			var plug *workspace.PluginError
			if !errors.As(err, &plug) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestF4_AListingOf100000Names(t *testing.T) {
	const total = 100_000
	ws := newWorkspace(t, &raw{readDir: func(stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
		var entries []*berthv1.FileInfo
		for i := range total {
			entries = append(entries, &berthv1.FileInfo{Name: fmt.Appendf(nil, "%06d-%s", i, strings.Repeat("n", 200)), Mode: 0o100644})
			if len(entries) == 300 {
				if err := stream.Send(&berthv1.ReadDirResponse{Entries: entries}); err != nil {
					return err
				}
				entries = nil
			}
		}
		return stream.Send(&berthv1.ReadDirResponse{Entries: entries, End: true})
	}})
	infos, err := ws.ReadDir(t.Context(), ".")
	if err != nil || len(infos) != total {
		t.Errorf("%d entries, %v", len(infos), err)
	}
}

func TestB7_APluginsErrorsAreRedacted(t *testing.T) {
	p := &raw{
		schema: `{"type":"object","properties":{"key":{"type":"string","writeOnly":true}}}`,
		stat: func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
			return nil, wire.ToStatus(&fs.PathError{Op: "stat", Path: "x", Err: errors.New("401 for s3cret-key")})
		},
	}
	ws := newWorkspace(t, p, func(c *host.Config) {
		c.Providers["raw"] = host.Provider{InProcess: p, Config: map[string]any{"key": "s3cret-key"}}
	})
	if _, err := ws.Stat(t.Context(), "f"); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "401") {
		t.Error(err)
	}
	// A plugin without our SDK sends no detail.
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		p.stat = func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
			return nil, status.Error(code, "401 for s3cret-key "+strings.Repeat("x", 60)+" s3cret-key")
		}
		if _, err := ws.Stat(t.Context(), "f"); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v: %v", code, err)
		}
	}
}

func TestRealPathMustBeAbsolute(t *testing.T) {
	var plug *workspace.PluginError
	if path, err := newWorkspace(t, &raw{realPath: func() string { return "../x" }}).RealPath(t.Context(), "x"); !errors.As(err, &plug) {
		t.Errorf("%q, %v", path, err)
	}
}

func TestF3_ErrorsCarryTheCallersPath(t *testing.T) {
	var answer error
	p := &raw{stat: func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) { return nil, answer }}
	ws := newWorkspace(t, p)
	for name, test := range map[string]struct {
		err  error
		path bool // in an *fs.PathError
		is   error
	}{
		"a path error":          {wire.ToStatus(&fs.PathError{Op: "lstat", Path: "/abs/x", Err: syscall.ENOTDIR}), true, syscall.ENOTDIR},
		"one that is wrapped":   {wire.ToStatus(fmt.Errorf("looking: %w", &fs.PathError{Op: "lstat", Path: "/abs/x", Err: fs.ErrNotExist})), true, fs.ErrNotExist},
		"a bare errno":          {wire.ToStatus(syscall.ELOOP), true, syscall.ELOOP},
		"a link error":          {wire.ToStatus(&os.LinkError{Op: "x", Old: "a", New: "b", Err: syscall.EXDEV}), true, syscall.EXDEV},
		"a foreign not found":   {status.Error(codes.NotFound, "no such thing"), true, fs.ErrNotExist},
		"a foreign invalid":     {status.Error(codes.InvalidArgument, "no"), false, workspace.ErrInvalid},
		"a foreign abort":       {status.Error(codes.Aborted, "429"), false, workspace.ErrTransient},
		"a foreign exhaustion":  {status.Error(codes.ResourceExhausted, "quota"), false, workspace.ErrTransient},
		"a foreign gone":        {status.Error(codes.FailedPrecondition, "gone"), false, workspace.ErrUnavailable},
		"a foreign unsupported": {status.Error(codes.Unimplemented, ""), false, errors.ErrUnsupported},
		"unavailable":           {wire.ToStatus(fmt.Errorf("gone: %w", workspace.ErrUnavailable)), false, workspace.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			answer = test.err
			before := p.calls.Load()
			_, err := ws.Stat(t.Context(), "my/path")
			var pathErr *fs.PathError
			if !errors.Is(err, test.is) || errors.As(err, &pathErr) != test.path {
				t.Fatalf("%T %v", err, err)
			}
			if test.path && (pathErr.Path != "my/path" || pathErr.Op != "stat") {
				t.Errorf("%v", err)
			}
			var plug *workspace.PluginError
			if errors.As(err, &plug) {
				t.Errorf("an answer was taken for a death: %v", err)
			}
			if n := p.calls.Load() - before; name != "a path error" && n > 2 {
				t.Errorf("%d calls", n)
			}
		})
	}
	answer = status.Error(codes.Unknown, "plain "+strings.Repeat("z", 1000))
	if _, err := ws.Stat(t.Context(), "f"); err == nil || !strings.Contains(err.Error(), "plain z") || len(err.Error()) > 300 {
		t.Error(err)
	}
}

func TestMessagesOverTheCapAreTypedErrors(t *testing.T) {
	big := strings.Repeat("x", wire.MaxMessage)
	ws := newWorkspace(t, &raw{stat: func(context.Context, *berthv1.StatRequest) (*berthv1.StatResponse, error) {
		return &berthv1.StatResponse{Info: &berthv1.FileInfo{Target: []byte(strings.Repeat(big, 4))}}, nil
	}})
	_, err := ws.Stat(t.Context(), "f")
	if err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("an answer of 64 MiB: %.200v", err)
	}
	_, err = ws.Stat(t.Context(), big)
	if !errors.Is(err, syscall.E2BIG) || !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("a path of 16 MiB: %.200v", err)
	}
	if _, err := ws.Lstat(t.Context(), "f"); errors.Is(err, context.Canceled) {
		t.Errorf("the connection is gone: %v", err)
	}
}

func TestReadOnlyChangesNothing(t *testing.T) {
	ws := newState(t)
	ctx := t.Context()
	if err := ws.WriteFile(ctx, "f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	ro := host.ReadOnly(ws)
	for name, call := range map[string]func() error{
		"run":       func() error { _, err := ro.Run(ctx, workspace.Command{Script: "true"}); return err },
		"start":     func() error { _, err := ro.Start(ctx, workspace.Command{Script: "true"}); return err },
		"create":    func() error { _, err := ro.Create(ctx, "f", workspace.WriteOptions{}); return err },
		"write":     func() error { return ro.WriteFile(ctx, "f", nil) },
		"mkdir":     func() error { return ro.MkdirAll(ctx, "d") },
		"remove":    func() error { return ro.Remove(ctx, "f") },
		"removeall": func() error { return ro.RemoveAll(ctx, "f") },
		"rename":    func() error { return ro.Rename(ctx, "f", "g") },
		"symlink":   func() error { return ro.Symlink(ctx, "f", "g") },
		"chmod":     func() error { return ro.Chmod(ctx, "f", 0) },
		"chtimes":   func() error { return ro.Chtimes(ctx, "f", time.Now()) },
	} {
		if err := call(); !errors.Is(err, workspace.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if data, err := ro.ReadFile(ctx, "f"); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	features, err := ro.Features(ctx)
	if err != nil || features.Has(workspace.FeatureRename) || !features.Has(workspace.FeatureFiles) {
		t.Errorf("%v, %v", features, err)
	}
}
