package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// ending is a backend that ends some time after it is looked at.
type ending struct {
	backend
	after  time.Duration // zero: never
	reason string
	oom    string
	exited chan struct{}
}

func (e *ending) Exited() <-chan struct{} {
	if e.exited == nil {
		e.exited = make(chan struct{})
		if e.after > 0 {
			time.AfterFunc(e.after, func() { close(e.exited) })
		}
	}
	return e.exited
}

func (e *ending) Finished() <-chan struct{} { return e.exited }
func (e *ending) PID() int                  { return 42 }
func (e *ending) Reason() string            { return e.reason }
func (e *ending) OutOfMemory() string       { return e.oom }
func (e *ending) Stderr() []string          { return []string{"last"} }
func (e *ending) ExitStatus() string {
	if exited(e.exited) {
		return "exit status 7"
	}
	return ""
}

func TestB7_NoPartOfAnErrorKeepsASecret(t *testing.T) {
	const secret = "s3cret"
	redact := strings.NewReplacer(secret, "[redacted]").Replace
	for _, err := range []error{
		errors.New(secret),
		&fs.PathError{Op: "stat", Path: "f", Err: errors.New(secret)},
		&workspace.TimeoutError{Survivors: secret},
		&workspace.OutputLimitError{Survivors: secret},
		&workspace.PluginError{Reason: secret, Stderr: []string{"a", secret}},
	} {
		// As whoever finds the types in it sees it.
		if got := fmt.Sprintf("%v %+v", Remote(wire.ToDetail(err), redact), unwrapped(Remote(wire.ToDetail(err), redact))); strings.Contains(got, secret) || !strings.Contains(got, "[redacted]") {
			t.Errorf("%T: %s", err, got)
		}
	}
}

// unwrapped are the typed errors in err, as they print.
func unwrapped(err error) (list []string) {
	var timeout *workspace.TimeoutError
	if errors.As(err, &timeout) {
		list = append(list, timeout.Survivors)
	}
	var limit *workspace.OutputLimitError
	if errors.As(err, &limit) {
		list = append(list, limit.Survivors)
	}
	var plug *workspace.PluginError
	if errors.As(err, &plug) {
		list = append(append(list, plug.Reason), plug.Stderr...)
	}
	return list
}

func TestInstanceError(t *testing.T) {
	lost := status.Error(codes.Unavailable, "error reading from server: EOF")
	const soon = 50 * time.Millisecond
	tests := []struct {
		name   string
		after  time.Duration
		killed string
		oom    string
		cause  error
		reason string
		status string
	}{
		{name: "its end comes just after the broken connection", after: soon, cause: lost, reason: "the plugin ended during the call", status: "exit status 7"},
		{name: "killed by the host", after: soon, killed: "it hung", cause: lost, reason: "the host ended the plugin: it hung", status: "exit status 7"},
		{name: "killed by the kernel", after: soon, oom: "it wanted more", cause: lost, reason: "the kernel ended the plugin: it wanted more", status: "exit status 7"},
		{name: "a stream that broke", after: soon, cause: io.ErrUnexpectedEOF, reason: "the plugin ended during the call", status: "exit status 7"},
		{name: "connection lost, process there", cause: lost, reason: "the connection to the plugin broke: error reading from server: EOF"},
		{name: "deadline", cause: context.DeadlineExceeded, reason: "the plugin did not answer in time"},
		{name: "deadline of gRPC", cause: status.Error(codes.DeadlineExceeded, "x"), reason: "the plugin did not answer in time"},
		{name: "too large", cause: status.Error(codes.ResourceExhausted, "received message larger than max"), reason: "a message was larger than the cap of 16777216 bytes"},
		{name: "garbage", cause: status.Error(codes.Internal, "grpc: failed to unmarshal"), reason: "grpc: failed to unmarshal"},
		{name: "any error", cause: errors.New("odd"), reason: "odd"},
		{name: "none", reason: "the plugin failed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inst := &Instance{s: New(Config{Provider: "p"}), plugin: &plugin{backend: &ending{after: test.after, reason: test.killed, oom: test.oom}}}
			err := inst.Error("run", "r1", test.cause, true)
			if !strings.HasPrefix(err.Reason, test.reason) || err.ExitStatus != test.status {
				t.Errorf("%+v", err)
			}
			if err.Provider != "p" || err.Op != "run" || err.RunID != "r1" || err.PID != 42 || !err.MayHaveExecuted || len(err.Stderr) != 1 {
				t.Errorf("%+v", err)
			}
		})
	}
}
