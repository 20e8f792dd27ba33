package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// sentinels are all that a caller may decide on with errors.Is, but errnos.
var sentinels = []error{
	workspace.ErrInvalid, workspace.ErrUnavailable, workspace.ErrTransient, workspace.ErrReadOnly,
	errors.ErrUnsupported, fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrClosed,
	context.Canceled, context.DeadlineExceeded, os.ErrProcessDone,
}

// errnos are those that the contract speaks of, and more that files and
// processes give.
var errnos = []syscall.Errno{
	syscall.E2BIG, syscall.EACCES, syscall.EAGAIN, syscall.EBADF, syscall.EBUSY, syscall.ECHILD, syscall.ECONNREFUSED,
	syscall.ECONNRESET, syscall.EDEADLK, syscall.EDOM, syscall.EDQUOT, syscall.EEXIST, syscall.EFAULT, syscall.EFBIG,
	syscall.EHOSTUNREACH, syscall.EILSEQ, syscall.EINTR, syscall.EINVAL, syscall.EIO, syscall.EISDIR, syscall.ELOOP,
	syscall.EMFILE, syscall.EMLINK, syscall.ENAMETOOLONG, syscall.ENETUNREACH, syscall.ENFILE, syscall.ENODEV,
	syscall.ENOENT, syscall.ENOEXEC, syscall.ENOLCK, syscall.ENOMEM, syscall.ENOSPC, syscall.ENOSYS, syscall.ENOTCONN,
	syscall.ENOTDIR, syscall.ENOTEMPTY, syscall.ENOTSUP, syscall.ENXIO, syscall.EOPNOTSUPP, syscall.EOVERFLOW,
	syscall.EPERM, syscall.EPIPE, syscall.ERANGE, syscall.EROFS, syscall.ESPIPE, syscall.ESRCH, syscall.ESTALE,
	syscall.ETIMEDOUT, syscall.ETXTBSY, syscall.EXDEV,
}

// odd is a text of bytes that break what is careless of them.
const odd = "NUL \x00, not UTF-8 \xff\xfe\xed\xa0\x80, newline \n\r, percent %s%0A, \u2028 \x1b[31m é😀"

// crossings are errors of every kind, alone and together.
func crossings() map[string]error {
	list := map[string]error{
		"plain":                     errors.New("no such image"),
		"empty text":                errors.New(""),
		"odd text":                  errors.New(odd),
		"wrapped twice":             fmt.Errorf("a: %w", fmt.Errorf("b: %w", workspace.ErrUnavailable)),
		"two sentinels":             fmt.Errorf("%w (%w)", workspace.ErrInvalid, syscall.E2BIG),
		"joined":                    errors.Join(workspace.ErrTransient, fs.ErrPermission, errors.New("third")),
		"all sentinels":             errors.Join(sentinels...),
		"path":                      &fs.PathError{Op: "open", Path: "a.txt", Err: syscall.ENOENT},
		"path with a sentinel":      &fs.PathError{Op: "open", Path: "a.txt", Err: fs.ErrNotExist},
		"path with a text":          &fs.PathError{Op: "open", Path: "a.txt", Err: errors.New("is a fifo")},
		"path with an odd text":     &fs.PathError{Op: "op", Path: odd, Err: errors.New(odd)},
		"path with an invalid":      workspace.ValidatePath("stat", "a\x00"),
		"path without anything":     &fs.PathError{Err: errors.New("")},
		"path, transient":           &fs.PathError{Op: "read", Path: "a", Err: fmt.Errorf("engine: 503: %w", workspace.ErrTransient)},
		"wrapped path":              fmt.Errorf("copying: %w", &fs.PathError{Op: "mkdir", Path: "d", Err: syscall.ENOTEMPTY}),
		"wrapped path and beside":   fmt.Errorf("copying: %w: %w", &fs.PathError{Op: "mkdir", Path: "d", Err: syscall.EROFS}, workspace.ErrTransient),
		"joined paths":              errors.Join(&fs.PathError{Op: "rm", Path: "1", Err: syscall.EACCES}, &fs.PathError{Op: "rm", Path: "2", Err: syscall.EBUSY}),
		"link":                      &os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EXDEV},
		"link to an empty name":     &os.LinkError{Op: "symlink", Old: "a", New: "", Err: syscall.ENOENT},
		"odd link":                  fmt.Errorf("moving: %w", &os.LinkError{Op: "rename", Old: odd, New: odd, Err: errors.New(odd)}),
		"timeout":                   &workspace.TimeoutError{Timeout: 1500 * time.Millisecond},
		"timeout, all":              &workspace.TimeoutError{Timeout: 1<<63 - 1, Ceiling: true, Survivors: odd},
		"wrapped timeout":           fmt.Errorf("building: %w", &workspace.TimeoutError{Timeout: time.Second}),
		"output limit":              &workspace.OutputLimitError{Limit: 10 << 20},
		"output limit, all":         &workspace.OutputLimitError{Limit: 1<<63 - 1, Survivors: odd},
		"plugin":                    &workspace.PluginError{Provider: "docker", Op: "start", Reason: "not found"},
		"plugin, all":               &workspace.PluginError{Provider: odd, Op: odd, Workspace: odd, RunID: odd, PID: 1<<31 - 1, ExitStatus: odd, Stderr: []string{odd, "", odd}, MayHaveExecuted: true, Reason: odd},
		"wrapped plugin":            fmt.Errorf("opening: %w", &workspace.PluginError{Provider: "k", Op: "run", Reason: "died", MayHaveExecuted: true}),
		"plugin and transient":      errors.Join(&workspace.PluginError{Provider: "k", Op: "run"}, workspace.ErrTransient),
		"all typed":                 errors.Join(&workspace.TimeoutError{Timeout: 1}, &workspace.OutputLimitError{Limit: 2}, &workspace.PluginError{Provider: "p"}, &fs.PathError{Op: "o", Path: "p", Err: syscall.EIO}),
		"a context's cause":         fmt.Errorf("waiting for the container: %w", context.DeadlineExceeded),
		"an error of the system":    os.NewSyscallError("epoll_wait", syscall.EINTR),
		"an errno of no name":       fmt.Errorf("odd: %w", syscall.Errno(9999)),
		"an error of its own":       io.ErrUnexpectedEOF,
		"what looks like a kind":    errors.New(workspace.ErrUnavailable.Error()),
		"what crossed once before":  wire.FromDetail(wire.ToDetail(fmt.Errorf("far: %w", &fs.PathError{Op: "open", Path: odd, Err: syscall.ELOOP}))),
		"wrapped, crossed before":   fmt.Errorf("again: %w", wire.FromDetail(wire.ToDetail(workspace.ErrUnavailable))),
		"gRPC's own, unimplemented": status.Error(codes.Unimplemented, "unknown method"),
	}
	for _, err := range sentinels {
		list["sentinel "+err.Error()] = err
		list["wrapped sentinel "+err.Error()] = fmt.Errorf("%s: %w", odd, err)
		list["path of sentinel "+err.Error()] = &fs.PathError{Op: "open", Path: odd, Err: err}
	}
	for _, errno := range errnos {
		list[fmt.Sprintf("errno %d", int(errno))] = errno
		list[fmt.Sprintf("path of errno %d", int(errno))] = &fs.PathError{Op: "open", Path: "x", Err: errno}
	}
	return list
}

// checkSame checks that nothing a caller may decide on was lost or made up.
func checkSame(t *testing.T, got, want error) {
	t.Helper()
	if got == nil {
		t.Fatalf("nil of %v", want)
	}
	if got.Error() != want.Error() {
		t.Errorf("text %q, want %q", got.Error(), want.Error())
	}
	for _, sentinel := range sentinels {
		is := errors.Is(want, sentinel)
		if status.Code(want) == codes.Unimplemented { // gRPC's own word for it
			is = sentinel == errors.ErrUnsupported //nolint:errorlint // it is this very value
		}
		if errors.Is(got, sentinel) != is {
			t.Errorf("errors.Is(%v, %v) is %v", got, sentinel, !is)
		}
	}
	var wantErrno, gotErrno syscall.Errno
	if errors.As(want, &wantErrno) && wantErrno != 9999 {
		if !errors.As(got, &gotErrno) || gotErrno != wantErrno {
			t.Errorf("errno %d (%v) of %v, want %d", int(gotErrno), gotErrno, got, int(wantErrno))
		}
	}
	checkAs[*fs.PathError](t, got, want, func(e *fs.PathError) any { return []string{e.Op, e.Path, e.Err.Error()} })
	checkAs[*os.LinkError](t, got, want, func(e *os.LinkError) any { return []string{e.Op, e.Old, e.New, e.Err.Error()} })
	checkAs[*workspace.TimeoutError](t, got, want, nil)
	checkAs[*workspace.OutputLimitError](t, got, want, nil)
	checkAs[*workspace.PluginError](t, got, want, nil)
}

// checkAs checks that errors.As finds an equal E in both or in neither. fields
// tells what makes it equal, nil all of it.
func checkAs[E error](t *testing.T, got, want error, fields func(E) any) {
	t.Helper()
	if fields == nil {
		fields = func(e E) any { return e }
	}
	var g, w E
	gotIt, wantIt := errors.As(got, &g), errors.As(want, &w)
	switch {
	case gotIt != wantIt:
		t.Errorf("%T found in %v: %v, want %v", g, got, gotIt, wantIt)
	case wantIt && !reflect.DeepEqual(fields(g), fields(w)):
		t.Errorf("%T %+v, want %+v", g, fields(g), fields(w))
	}
}

func TestB5_ErrorsCross(t *testing.T) {
	p := newPeer(t)
	for name, want := range crossings() {
		t.Run(name, func(t *testing.T) {
			got := p.cross(t.Context(), want)
			checkSame(t, got, want)
			// And a second time, as from a guest through a plugin to the host.
			checkSame(t, p.cross(t.Context(), got), want)
		})
	}
	if err := p.cross(t.Context(), nil); err != nil {
		t.Errorf("no error crosses as %v", err)
	}
	if wire.ToStatus(nil) != nil || wire.FromStatus(nil) != nil || wire.Detail(nil) != nil {
		t.Error("nil is an error")
	}
	if wire.ToDetail(nil) != nil {
		t.Error("nil has a detail")
	}
}

// The simplest errors arrive as what they were, so that a caller who prints or
// compares them sees nothing of the way.
func TestB5_PlainErrorsArriveAsThemselves(t *testing.T) {
	p := newPeer(t)
	for _, want := range append([]error{syscall.ENOSPC, &workspace.TimeoutError{Timeout: 1}}, sentinels...) {
		if got := p.cross(t.Context(), want); !reflect.DeepEqual(got, want) {
			t.Errorf("%#v, want %#v", got, want)
		}
	}
	want := &fs.PathError{Op: "open", Path: "a", Err: syscall.EISDIR}
	if got := p.cross(t.Context(), want); !reflect.DeepEqual(got, want) {
		t.Errorf("%#v, want %#v", got, want)
	}
	if got, want := fmt.Sprintf("%v|%+v|%s|%q|%30s", p.cross(t.Context(), errors.New("a b")), p.cross(t.Context(), errors.New("c")), p.cross(t.Context(), errors.New("d")), p.cross(t.Context(), errors.New("e\n")), p.cross(t.Context(), errors.New("f"))),
		`a b|c|d|"e\n"|                             f`; got != want {
		t.Errorf("printed as %s, want %s", got, want)
	}
}

// Whatever an error holds, it neither breaks its connection nor loses what it is.
func TestB5_HugeErrorsAreCut(t *testing.T) {
	p := newPeer(t)
	huge := strings.Repeat("x\xff", 1<<20)
	lines := make([]string, 100_000)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d", i)
	}
	long := make([]string, 10)
	for i := range long {
		long[i] = huge[:1<<20]
	}
	empty := make([]string, 1<<20)
	all := errors.Join(
		&os.LinkError{Op: huge, Old: huge, New: huge, Err: fmt.Errorf("%s: %w", huge, syscall.ENOSPC)},
		&workspace.TimeoutError{Timeout: 1, Survivors: huge},
		&workspace.OutputLimitError{Limit: 1, Survivors: huge},
		&workspace.PluginError{Provider: huge, Op: huge, Workspace: huge, RunID: huge, ExitStatus: huge, Stderr: long, Reason: huge},
	)
	for name, want := range map[string]error{
		"text":          errors.New(strings.Repeat(huge, 20)), // over any limit of gRPC
		"path":          &fs.PathError{Op: huge, Path: huge, Err: fmt.Errorf("%s: %w", huge, syscall.ENAMETOOLONG)},
		"link":          &os.LinkError{Op: huge, Old: huge, New: huge, Err: syscall.ENOSPC},
		"timeout":       &workspace.TimeoutError{Survivors: huge},
		"plugin":        &workspace.PluginError{Provider: huge, Op: huge, Workspace: huge, RunID: huge, ExitStatus: huge, Stderr: lines, Reason: huge},
		"long lines":    &workspace.PluginError{Stderr: long},
		"no lines":      &workspace.PluginError{Stderr: empty},
		"all of it":     fmt.Errorf("%s: %w: %w", huge, workspace.ErrUnavailable, all),
		"control bytes": errors.New(strings.Repeat("\x00\n%", 1<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			const most = 1 << 20 // what the protocol promises of a detail
			if size := proto.Size(wire.ToDetail(want)); size > most {
				t.Errorf("a detail of %d bytes", size)
			}
			got := p.cross(t.Context(), want)
			for _, sentinel := range sentinels {
				if errors.Is(got, sentinel) != errors.Is(want, sentinel) {
					t.Errorf("errors.Is %v is %v", sentinel, errors.Is(got, sentinel))
				}
			}
			for _, errno := range errnos {
				if errors.Is(got, errno) != errors.Is(want, errno) {
					t.Errorf("errors.Is %v is %v", errno, errors.Is(got, errno))
				}
			}
			if got := got.Error(); len(got) > wire.MaxErrorText || got[:100] != want.Error()[:100] || !strings.HasSuffix(got, "(cut)") {
				t.Errorf("text of %d bytes: %q … %q", len(got), got[:100], got[len(got)-20:])
			}
		})
	}
	// The last lines are those that tell why, so they stay, in order.
	var plugin *workspace.PluginError
	if !errors.As(p.cross(t.Context(), &workspace.PluginError{Stderr: lines}), &plugin) {
		t.Fatal("no PluginError")
	}
	kept := plugin.Stderr
	if len(kept) < 1000 || !reflect.DeepEqual(kept, lines[len(lines)-len(kept):]) {
		t.Errorf("%d lines kept: %q …", len(kept), kept[:min(3, len(kept))])
	}
	// The connection still stands.
	if err := p.cross(t.Context(), workspace.ErrReadOnly); !errors.Is(err, workspace.ErrReadOnly) {
		t.Errorf("afterwards: %v", err)
	}
}

// The code and the message of the status are for peers and logs that do not read
// our detail.
func TestStatusItself(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code codes.Code
	}{
		{errors.New("x"), codes.Unknown},
		{workspace.ErrInvalid, codes.InvalidArgument},
		{workspace.ErrUnavailable, codes.FailedPrecondition},
		{workspace.ErrTransient, codes.Aborted},
		{workspace.ErrReadOnly, codes.PermissionDenied},
		{errors.ErrUnsupported, codes.Unimplemented},
		{status.Error(codes.Unimplemented, "unknown method"), codes.Unimplemented},
		{&fs.PathError{Op: "open", Path: "a", Err: syscall.ENOENT}, codes.NotFound},
		{fs.ErrExist, codes.AlreadyExists},
		{syscall.EACCES, codes.PermissionDenied},
		{fs.ErrClosed, codes.FailedPrecondition},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{os.ErrProcessDone, codes.NotFound},
		{fmt.Errorf("%w: %w", fs.ErrNotExist, workspace.ErrInvalid), codes.InvalidArgument},
		// The connection is fine: a provider's backend is what is unreachable.
		{status.Error(codes.Unavailable, "backend"), codes.Unknown},
	} {
		if got := status.Code(wire.ToStatus(tt.err)); got != tt.code {
			t.Errorf("%v has code %v, want %v", tt.err, got, tt.code)
		}
	}
	for text, want := range map[string]string{
		"plain":                    "plain",
		"é\x00\n\xff\x7f%":         "?????%",
		"":                         "",
		strings.Repeat("a", 1<<20): strings.Repeat("a", 4<<10),
	} {
		if got := status.Convert(wire.ToStatus(errors.New(text))).Message(); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
	once := wire.ToStatus(workspace.ErrReadOnly)
	if twice := wire.ToStatus(once); twice != once { //nolint:errorlint // it is this very value
		t.Errorf("ToStatus of its own result is %v", twice)
	}
}

// A status without a detail of ours is what its code plainly says, keeps its
// text, and stays a status.
func TestStatusWithoutDetail(t *testing.T) {
	p := newPeer(t)
	for _, tt := range []struct {
		code codes.Code
		want error // nil: not an answer of the plugin
	}{
		{codes.InvalidArgument, workspace.ErrInvalid},
		{codes.NotFound, fs.ErrNotExist},
		{codes.AlreadyExists, fs.ErrExist},
		{codes.PermissionDenied, fs.ErrPermission},
		{codes.OutOfRange, workspace.ErrInvalid},
		{codes.FailedPrecondition, workspace.ErrUnavailable},
		{codes.Unauthenticated, fs.ErrPermission},
		{codes.Aborted, workspace.ErrTransient},
		{codes.Unimplemented, errors.ErrUnsupported},
		{codes.Canceled, nil}, {codes.Unknown, nil}, {codes.DeadlineExceeded, nil}, {codes.ResourceExhausted, nil},
		{codes.Internal, nil}, {codes.Unavailable, nil}, {codes.DataLoss, nil}, {codes.Code(99), nil},
	} {
		raw := p.answer(t.Context(), status.Error(tt.code, "as it says"))
		if answered := wire.Answered(raw); answered != (tt.want != nil) {
			t.Errorf("%v: Answered is %v", tt.code, answered)
		}
		got := wire.FromStatus(raw)
		if !strings.Contains(got.Error(), "as it says") {
			t.Errorf("%v: %q", tt.code, got)
		}
		if code := status.Code(got); code != tt.code {
			t.Errorf("%v: a status with code %v", tt.code, code)
		}
		for _, sentinel := range sentinels {
			if errors.Is(got, sentinel) != (sentinel == tt.want) { //nolint:errorlint // from this very list
				t.Errorf("%v: errors.Is %v is %v", tt.code, sentinel, errors.Is(got, sentinel))
			}
		}
		if tt.want == nil && got != raw { //nolint:errorlint // it is this very value
			t.Errorf("%v: %#v is not returned as it is", tt.code, got)
		}
	}
	// A call that a peer does not have: the generated code answers it.
	_, err := p.client.RealPath(t.Context(), &berthv1.RealPathRequest{})
	if !errors.Is(wire.FromStatus(err), errors.ErrUnsupported) || !wire.Answered(err) {
		t.Errorf("a call that is missing: %v", wire.FromStatus(err))
	}
	// What is no status at all.
	plain := errors.New("plain")
	if got := wire.FromStatus(plain); got != plain || wire.Answered(plain) || wire.Answered(nil) { //nolint:errorlint // it is this very value
		t.Errorf("FromStatus of a plain error: %v", got)
	}
	if !wire.Answered(wire.ToStatus(plain)) {
		t.Error("a detail is no answer")
	}
}

// An error of a newer peer is still an error with its text, and with what we know
// of it.
func TestB5_UnknownKinds(t *testing.T) {
	p := newPeer(t)
	detail := &berthv1.ErrorDetail{
		Message: []byte("over the quota"), Kinds: []string{"quota", "transient", "", "TRANSIENT"}, Errno: "EQUOTA",
	}
	detail.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 3, 'n', 'e', 'w'}) // field 1023
	st, err := status.New(codes.Code(77), "over the quota").WithDetails(&berthv1.Time{Seconds: 1}, detail)
	if err != nil {
		t.Fatal(err)
	}
	got := wire.FromStatus(p.answer(t.Context(), st.Err()))
	if got.Error() != "over the quota" || !errors.Is(got, workspace.ErrTransient) || errors.Is(got, workspace.ErrUnavailable) {
		t.Errorf("%v", got)
	}
	for _, detail := range []*berthv1.ErrorDetail{nil, {}, {Kinds: []string{"quota"}}, {Errno: "E"}, {Path: &berthv1.PathDetail{}}, {Plugin: &berthv1.PluginDetail{}}} {
		if got := wire.FromDetail(detail); got == nil {
			t.Errorf("%v is no error", detail)
		}
	}
}

// A detail that does not unmarshal leaves the status.
func TestBrokenDetail(t *testing.T) {
	p := newPeer(t)
	st, err := status.New(codes.NotFound, "gone").WithDetails(&berthv1.ErrorDetail{})
	if err != nil {
		t.Fatal(err)
	}
	pb := st.Proto()
	for _, value := range [][]byte{{0xff}, {0x12, 1, 0xff}, {0x1a, 200}} { // garbage; a kind that is not UTF-8; too short
		pb.Details[0].Value = value
		got := wire.FromStatus(p.answer(t.Context(), status.FromProto(pb).Err()))
		if !strings.Contains(got.Error(), "gone") || !errors.Is(got, fs.ErrNotExist) {
			t.Errorf("%x: %v", value, got)
		}
	}
}

// A peer that repeats itself costs no more than its message.
func TestRepeatedKinds(t *testing.T) {
	many := append(slices.Repeat([]string{"invalid"}, 1<<20), "exist")
	got := wire.FromDetail(&berthv1.ErrorDetail{Message: []byte(workspace.ErrInvalid.Error()), Kinds: many})
	if !errors.Is(got, workspace.ErrInvalid) || !errors.Is(got, fs.ErrExist) || errors.Is(got, workspace.ErrReadOnly) {
		t.Errorf("%v", got)
	}
	wrapped, ok := got.(interface{ Unwrap() []error })
	if !ok || len(wrapped.Unwrap()) != 2 {
		t.Errorf("%#v", got)
	}
}

// brokenError panics when it is asked.
type brokenError struct{ text *string }

func (e *brokenError) Error() string { return *e.text }

// An error value that panics must not take the plugin down with it.
func TestBrokenErrorValues(t *testing.T) {
	p := newPeer(t)
	for _, err := range []error{
		&fs.PathError{Op: "open", Path: "a"}, // no cause
		(*fs.PathError)(nil),
		(*workspace.PluginError)(nil),
		&brokenError{},
		(*brokenError)(nil),
	} {
		got := p.cross(t.Context(), err)
		if got == nil || !strings.Contains(got.Error(), fmt.Sprintf("%T", err)) {
			t.Errorf("%T crosses as %v", err, got)
		}
	}
}
