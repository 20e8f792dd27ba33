package sdk

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// TestB3_TheAgeOfAStartCountsItsWholeWay: a guest that was started again meanwhile
// would take one that is told too young for one that it must have heard of.
func TestB3_TheAgeOfAStartCountsItsWholeWay(t *testing.T) {
	const attaching, connecting = 200 * time.Millisecond, 100 * time.Millisecond
	ages := make(chan time.Duration, 1)
	ws := &guarded{bare: newBare(), features: allFeatures}
	guest := &scriptedGuest{run: func(stream runStream) error {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		ages <- time.Duration(m.GetStart().GetRepeatedAfterNs())
		if err := stream.Send(startedMessage()); err != nil {
			return err
		}
		return stream.Send(exitedMessage(0, 0, 0))
	}}
	ws.client = connectTo(t, func(r grpc.ServiceRegistrar) { berthv1.RegisterProviderServer(r, guest) })
	pass := func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ws.connect = func(ctx context.Context) error { return pass(ctx, connecting) }
	provider := providing(ws)
	provider.attach = func(ctx context.Context, _ string) (Workspace, error) { return ws, pass(ctx, attaching) }
	client := serveProvider(t, provider)
	const told = time.Second
	call := startRun(t, t.Context(), client, &berthv1.RunStart{RepeatedAfterNs: int64(told)})
	if code, err := call.wait(); code != 0 || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if age := <-ages; age < told+attaching+connecting {
		t.Errorf("an age of %v arrives as %v", told, age)
	}
	call = startRun(t, t.Context(), client, &berthv1.RunStart{RunId: "run-first"})
	if code, err := call.wait(); code != 0 || err != nil {
		t.Fatalf("code %d, %v", code, err)
	}
	if age := <-ages; age != 0 {
		t.Errorf("a first start arrives with an age of %v", age)
	}
}
