package sdk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func linked() *memory {
	m := newMemory()
	for path, target := range map[string]string{
		"/work": "", "/work/d": "", "/link": "work", "/abs": "/work/d", "/work/up": "..", "/work/self": "self",
		"/work/a": "b", "/work/b": "a", "/work/d/here": ".", "/work/dangling": "no/such", "/work/deep": "/abs/../d/here/x",
	} {
		mode := fs.ModeDir | 0o755
		if target != "" {
			mode = fs.ModeSymlink | 0o777
		}
		m.files[path] = &memoryFile{mode: mode, target: target}
	}
	for i := range maxLinks + 1 { // c0 -> c1 -> …
		m.files[fmt.Sprintf("/work/c%d", i)] = &memoryFile{target: fmt.Sprintf("c%d", i+1)}
	}
	return m
}

func TestF7_RealPathIsDerived(t *testing.T) {
	client := serveProvider(t, providing(linked()))
	for path, want := range map[string]string{
		".": "/work", "..": "/", "../../..": "/", "/": "/", "//": "/", "x": "/work/x", "x/y/../z": "/work/x/z",
		"/link/x": "/work/x", "/abs": "/work/d", "/abs/..": "/work", "up/link": "/work", "up": "/", "d/here/here": "/work/d",
		"dangling": "/work/no/such", "deep": "/work/d/x", "c1": fmt.Sprintf("/work/c%d", maxLinks+1), "\xff\n": "/work/\xff\n",
		"x/..": "/work", "/abs/../up/work/d/": "/work/d",
	} {
		answer, err := client.RealPath(t.Context(), &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte(path)})
		if err != nil || string(answer.GetPath()) != want {
			t.Errorf("%q is %q, error %v, want %q", path, answer.GetPath(), err, want)
		}
	}
	for _, path := range []string{"self", "a", "b/x", "c0"} {
		err := fromCall(fileCalls[opRealPath](t.Context(), client, path))
		var pathErr *fs.PathError
		if !errors.Is(err, syscall.ELOOP) || !errors.As(err, &pathErr) || pathErr.Path != path {
			t.Errorf("%q: error %v", path, err)
		}
	}
	ws := linked()
	ws.fail = func(string, string) error { return workspace.ErrTransient }
	mustBe(t, fromCall(fileCalls[opRealPath](t.Context(), serveProvider(t, providing(ws)), "d")), workspace.ErrTransient)
}

// resolving has a RealPath of its own.
type resolving struct {
	*memory
	asked []string
}

func (r *resolving) RealPath(_ context.Context, path string) (string, error) {
	r.asked = append(r.asked, path)
	return "/its/own", nil
}

func TestF7_RealPathOfTheProviderIsPreferred(t *testing.T) {
	ws := &resolving{memory: newMemory()}
	client := serveProvider(t, providing(ws))
	answer, err := client.RealPath(t.Context(), &berthv1.RealPathRequest{Workspace: key("ws"), Path: []byte("x")})
	if err != nil || string(answer.GetPath()) != "/its/own" || fmt.Sprint(ws.asked) != "[/work/x]" {
		t.Errorf("%q, asked %q, error %v", answer.GetPath(), ws.asked, err)
	}
}

func TestF6_WorkingDirectoryIsNotRemoved(t *testing.T) {
	ws := linked()
	client := serveProvider(t, providing(ws))
	remove := func(path string) error { return fromCall(fileCalls[opRemove](t.Context(), client, path)) }
	for _, path := range []string{
		".", "./", "..", "/", "//", "/work", "/work/", "/work/.", "../work", "d/..", "d/../", "/link/", "/link/.", "/link/../work",
		"/link/up/", "x/..", "/abs/..", "d/here/..", "deep/../..", "up",
	} {
		err := remove(path)
		if path == "up" { // the link itself
			if err != nil {
				t.Errorf("%q: %v", path, err)
			}
			continue
		}
		var pathErr *fs.PathError
		if !errors.Is(err, workspace.ErrInvalid) || !errors.As(err, &pathErr) || pathErr.Path != path {
			t.Errorf("%q: error %v", path, err)
		}
	}
	for _, path := range []string{"/link", "d/here", "self", "dangling", "/abs", "d"} {
		if err := remove(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	mustBe(t, remove("missing"), fs.ErrNotExist)
	if got := fmt.Sprintf("%q", ws.called("remove")); got != `["/work/up" "/link" "/work/d/here" "/work/self" "/work/dangling" "/abs" "/work/d" "/work/missing"]` {
		t.Errorf("removed %s", got)
	}
}

func TestPanicOfAnyFileCallIsAnError(t *testing.T) {
	ws := full{newMemory()}
	ws.fail = func(op, _ string) error { panic("in " + op) }
	client := connect(t, quiet(pluginOf(providing(ws))))
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	for op, call := range fileCalls {
		if err := fromCall(call(t.Context(), client, "a")); err == nil || !strings.Contains(err.Error(), "plugin fake: panic in") {
			t.Errorf("%s: error %v", op, err)
		}
	}
}

func BenchmarkStat(b *testing.B) {
	ws := newMemory()
	ws.files["/work/a"] = &memoryFile{mode: 0o644}
	client := serveProvider(b, providing(ws))
	req := &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")}
	b.ReportAllocs()
	for b.Loop() {
		ws.calls = ws.calls[:0]
		if _, err := client.Stat(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
