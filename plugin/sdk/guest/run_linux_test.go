package guest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

var runs atomic.Int64

func newRunID() string { return fmt.Sprintf("run-%d", runs.Add(1)) }

// result is what a run gave.
type result struct {
	stdout, stderr string
	code           int
	err            error
}

type runStream = grpc.BidiStreamingClient[berthv1.RunRequest, berthv1.RunResponse]

// shell runs a script to its end.
func shell(ctx context.Context, c *guest.Client, script string) result {
	stream, err := begin(ctx, c, newRunID(), script, false)
	if err != nil {
		return result{err: err}
	}
	return follow(stream)
}

func begin(ctx context.Context, c *guest.Client, id, script string, detached bool) (runStream, error) {
	stream, err := c.Provider().Run(ctx)
	if err != nil {
		return nil, err
	}
	return stream, stream.Send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Start{Start: &berthv1.RunStart{
		Workspace: c.Key(), RunId: id, Script: []byte(script), Detached: detached,
	}}})
}

// follow reads a run to its outcome, and takes all.
func follow(stream runStream) (r result) {
	var out, errOut strings.Builder
	var taken berthv1.RunTaken
	defer func() { r.stdout, r.stderr = out.String(), errOut.String() }()
	for {
		m, err := stream.Recv()
		if err != nil {
			r.err = err
			return r
		}
		switch m := m.GetMessage().(type) {
		case *berthv1.RunResponse_Stdout:
			out.Write(m.Stdout.GetData())
			taken.StdoutOffset = m.Stdout.GetOffset() + int64(len(m.Stdout.GetData()))
		case *berthv1.RunResponse_Stderr:
			errOut.Write(m.Stderr.GetData())
			taken.StderrOffset = m.Stderr.GetOffset() + int64(len(m.Stderr.GetData()))
		case *berthv1.RunResponse_Outcome:
			switch o := m.Outcome.GetResult().(type) {
			case *berthv1.RunOutcome_Exited:
				r.code = int(o.Exited.GetCode())
			case *berthv1.RunOutcome_Error:
				r.err = wire.FromDetail(o.Error)
			default:
				r.err = errors.New("an outcome without a result")
			}
			taken.Outcome = true
		}
		// That it has ended is told by receiving.
		_ = stream.Send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Taken{Taken: &taken}})
		if taken.GetOutcome() {
			_ = stream.CloseSend()
			return r
		}
	}
}

func TestRunsThroughConnect(t *testing.T) {
	for _, role := range []string{"serve", "init"} {
		t.Run(role, func(t *testing.T) {
			m := startMachine(t, role)
			c := m.connect(t)
			r := shell(t.Context(), c, "echo $$; pwd; env; echo oops >&2; exit 7")
			if r.err != nil || r.code != 7 || r.stderr != "oops\n" || !strings.Contains(r.stdout, m.dir+"\n") {
				t.Errorf("%+v", r)
			}
			for _, v := range m.env {
				if !strings.Contains(r.stdout, v+"\n") {
					t.Errorf("the environment lacks %q: %q", v, r.stdout)
				}
			}
			hello := c.Hello()
			if hello.Protocol != 1 || hello.Version != "test" || hello.WorkingDir != m.dir {
				t.Errorf("hello %+v", hello)
			}
		})
	}
}
