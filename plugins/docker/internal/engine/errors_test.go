package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/berth-dev/berth/shared/workspace"
)

// kinds are what a caller may decide on.
var kinds = map[string]error{
	"invalid": workspace.ErrInvalid, "transient": workspace.ErrTransient, "unavailable": workspace.ErrUnavailable, "no space": syscall.ENOSPC,
	// What is about the way to the engine must not look as if it were about a file
	// or the caller's context.
	"not exist": fs.ErrNotExist, "permission": fs.ErrPermission, "deadline": context.DeadlineExceeded, "cancelled": context.Canceled,
}

// wantKinds checks that an error is of these kinds and no others.
func wantKinds(t *testing.T, err error, want ...string) {
	t.Helper()
	for name, kind := range kinds {
		wanted := false
		for _, w := range want {
			wanted = wanted || w == name
		}
		if errors.Is(err, kind) != wanted {
			t.Errorf("%q is %s: %v", err, name, !wanted)
		}
	}
}

func wantTexts(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not hold %q", err, text)
		}
	}
}

func TestAnAnswerThatIsAnError(t *testing.T) {
	for _, test := range []struct {
		status  int
		message string
		kinds   []string
		is      func(error) bool
	}{
		{status: 400, message: "invalid mount", kinds: []string{"invalid"}, is: errdefs.IsInvalidArgument},
		{status: 403, message: "not by this plugin", is: errdefs.IsPermissionDenied},
		{status: 404, message: "No such container: x", is: errdefs.IsNotFound},
		{status: 409, message: "the name is in use", is: errdefs.IsConflict},
		{status: 429, message: "slowly", kinds: []string{"transient"}, is: errdefs.IsResourceExhausted},
		{status: 500, message: "oops", kinds: []string{"transient"}, is: errdefs.IsInternal},
		{status: 500, message: "write /var/lib/docker/x: no space left on device", kinds: []string{"no space"}, is: errdefs.IsInternal},
		{status: 500, message: "can only create exec sessions on running containers: container state improper", is: errdefs.IsConflict},
		{status: 501, message: "not here", is: errdefs.IsNotImplemented},
		{status: 502, message: "a gateway", kinds: []string{"transient"}},
		{status: 503, message: "shutting down", kinds: []string{"transient"}, is: errdefs.IsUnavailable},
		{status: 504, message: "a gateway", kinds: []string{"transient"}},
	} {
		t.Run(fmt.Sprintf("%d %s", test.status, test.message), func(t *testing.T) {
			f := newFake()
			f.route("/info", says(test.status, fmt.Sprintf(`{"message":%q}`, test.message)))
			f.route("/containers/c/exec", says(http.StatusCreated, `{"Id":"x1"}`))
			f.route("/exec/x1", says(test.status, fmt.Sprintf(`{"message":%q}`, test.message)))
			e := openFake(t, f)
			_, exec := e.Exec(t.Context(), "c", ExecOptions{Cmd: []string{"true"}})
			_, code := (&Exec{engine: e, id: "x1"}).ExitCode(t.Context())
			for what, err := range map[string]error{"a call": e.Query(t.Context(), "doing it", info), "an exec": exec, "an exit code": code} {
				t.Run(what, func(t *testing.T) {
					wantKinds(t, err, test.kinds...)
					wantTexts(t, err, test.message)
					if test.is != nil && !test.is(err) {
						t.Errorf("%v is not of the engine's own kind", err)
					}
					if !IsAnswer(err) {
						t.Errorf("%v is no answer", err)
					}
				})
			}
		})
	}
}

func TestAnEngineThatCannotBeReached(t *testing.T) {
	gone := socket(t)
	dead := socket(t)
	listener, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := port.Addr().String()
	port.Close()
	for name, host := range map[string]string{"no socket": "unix://" + gone, "nobody at the socket": "unix://" + dead, "nobody at the port": "tcp://" + address} {
		for call, do := range calls {
			t.Run(name+", "+call, func(t *testing.T) {
				err := do(t.Context(), openHost(t, host))
				wantKinds(t, err, "transient")
				wantTexts(t, err, host, "from DOCKER_HOST", "start the engine", envContext)
			})
		}
	}
}

func TestAnEngineThatDiesInACall(t *testing.T) {
	f := newFake()
	f.route("/", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	})
	e := openFake(t, f)
	for call, do := range calls {
		t.Run(call, func(t *testing.T) {
			err := do(t.Context(), e)
			wantKinds(t, err, "transient")
			wantTexts(t, err, e.Address())
		})
	}
}

func TestASocketThatMayNotBeUsedSaysWhoMay(t *testing.T) {
	path := serve(t, newFake())
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	e := openHost(t, "unix://"+path)
	// Nothing is denied to root: the error is that of another user.
	denied := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	err := e.Error(t.Context(), "asking", e.endpoint.unreachable(denied))
	wantKinds(t, err, "invalid")
	wantTexts(t, err, "asking: ", path, "permission denied", "in the group "+socketGroup(path), "rootless")
	if socketGroup(path) == "" {
		t.Error("the socket has no group")
	}

	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, e.Error(t.Context(), "asking", e.endpoint.unreachable(denied)), "may not use the socket")
	if os.Getuid() != 0 {
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		err := e.Query(t.Context(), "asking", info)
		wantKinds(t, err, "invalid")
		wantTexts(t, err, "permission denied")
	}
}

func TestAnErrorOfTheCallersContextIsThat(t *testing.T) {
	f := newFake()
	f.route("/info", says(http.StatusInternalServerError, `{"message":"oops"}`))
	e := openFake(t, f)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the user has gone")
	cancel(cause)
	if err := e.Query(ctx, "asking", info); !errors.Is(err, cause) {
		t.Errorf("it is %v", err)
	}
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	wantKinds(t, e.Query(late, "asking", info), "deadline")
}

func TestWhatSaysItsKindKeepsIt(t *testing.T) {
	e := openFake(t, newFake())
	wantKinds(t, e.Error(t.Context(), "doing it", fmt.Errorf("gone: %w", workspace.ErrUnavailable)), "unavailable")
	if e.Error(t.Context(), "doing it", nil) != nil {
		t.Error("no error is one")
	}
}
