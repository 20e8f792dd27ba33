package wire_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
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

// FuzzB5_ErrorsCross puts arbitrary bytes into every field of every error and
// sends them over a connection.
func FuzzB5_ErrorsCross(f *testing.F) {
	p := newPeer(f)
	f.Add("open", "a.txt", "no such file", "", int64(0), uint16(0))
	f.Add("rename", odd, odd, odd, int64(-1), uint16(0xffff))
	f.Add("", "", "", "", int64(1)<<62, uint16(0x0fff))
	f.Add("\x00", "\xff", "%", "\n", int64(-1)<<63, uint16(0x5555))
	f.Add("op", strings.Repeat("x", 70_000), strings.Repeat("\xff", 70_000), strings.Repeat("y\n", 40_000), int64(1), uint16(0xaaaa))
	f.Fuzz(func(t *testing.T, op, path, text, more string, number int64, shape uint16) {
		bit := func(i int) bool { return shape>>i&1 == 1 }
		// Each bit adds one thing that an error may hold.
		cause := errors.New(text)
		if bit(0) {
			cause = fmt.Errorf("%s: %w", text, sentinels[uint64(number)%uint64(len(sentinels))])
		}
		if bit(1) {
			cause = fmt.Errorf("%w: %s", errnos[uint64(number)%uint64(len(errnos))], more)
		}
		err := cause
		if bit(2) {
			err = &fs.PathError{Op: op, Path: path, Err: cause}
		}
		if bit(3) {
			err = &os.LinkError{Op: op, Old: path, New: more, Err: cause}
		}
		if bit(4) {
			err = fmt.Errorf("%w: %w", err, &workspace.TimeoutError{Timeout: time.Duration(number), Ceiling: bit(5), Survivors: more})
		}
		if bit(6) {
			err = fmt.Errorf("%w: %w", err, &workspace.OutputLimitError{Limit: number, Survivors: path})
		}
		if bit(7) {
			plugin := &workspace.PluginError{
				Provider: op, Op: path, Workspace: text, RunID: more, PID: int(int32(number)), ExitStatus: text,
				MayHaveExecuted: bit(8), Reason: text,
			}
			if bit(9) {
				plugin.Stderr = []string{text, "", more}
			}
			err = errors.Join(err, plugin)
		}
		if bit(10) {
			err = fmt.Errorf("%s: %w", more, err)
		}

		got := p.cross(t.Context(), err)
		if len(op)+len(path)+len(text)+len(more) < 900 { // nothing is cut
			checkSame(t, got, err)
			return
		}
		if got == nil || len(got.Error()) > wire.MaxErrorText {
			t.Fatalf("%v", got)
		}
		for _, sentinel := range sentinels {
			if errors.Is(got, sentinel) != errors.Is(err, sentinel) {
				t.Errorf("errors.Is %v is %v", sentinel, errors.Is(got, sentinel))
			}
		}
		var gotErrno, wantErrno syscall.Errno
		if errors.As(got, &gotErrno) != errors.As(err, &wantErrno) || gotErrno != wantErrno {
			t.Errorf("errno %v, want %v", gotErrno, wantErrno)
		}
	})
}

// FuzzFromDetail reads whatever a peer may send as a detail.
func FuzzFromDetail(f *testing.F) {
	for _, err := range crossings() {
		data, marshalErr := proto.Marshal(wire.ToDetail(err))
		if marshalErr != nil {
			f.Fatal(marshalErr)
		}
		f.Add(data)
	}
	f.Add([]byte{})
	f.Add([]byte{0x12, 1, 0xff}) // a kind that is not UTF-8
	f.Add([]byte{0x22, 0})       // an empty path
	f.Fuzz(func(t *testing.T, data []byte) {
		var detail berthv1.ErrorDetail
		if proto.Unmarshal(data, &detail) != nil {
			return
		}
		err := wire.FromDetail(&detail)
		if err == nil {
			t.Fatal("a detail that is no error")
		}
		if text := string(detail.GetMessage()); err.Error() != text {
			t.Fatalf("text %q, want %q", err.Error(), text)
		}
		for _, sentinel := range sentinels {
			_ = errors.Is(err, sentinel)
		}
		// What is read once reads the same when sent on.
		again := wire.FromDetail(wire.ToDetail(err))
		if len(data) < 900 {
			checkSame(t, again, err)
		}
		_ = fmt.Sprintf("%v %+v %#v %q", err, err, err, err)
	})
}

// FuzzFromStatus reads whatever a peer may send as a status.
func FuzzFromStatus(f *testing.F) {
	st, err := status.New(codes.NotFound, "x").WithDetails(wire.ToDetail(workspace.ErrUnavailable))
	if err != nil {
		f.Fatal(err)
	}
	data, err := proto.Marshal(st.Proto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{8, 5})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		pb := status.New(codes.OK, "").Proto()
		if proto.Unmarshal(data, pb) != nil {
			return
		}
		in := status.FromProto(pb).Err()
		got := wire.FromStatus(in)
		if (got == nil) != (in == nil) {
			t.Fatalf("%v of %v", got, in)
		}
		if got != nil && wire.Detail(in) == nil && !errors.Is(got, in) && !reflect.DeepEqual(got, in) {
			t.Fatalf("%v of %v", got, in)
		}
	})
}
