package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// These are spoken by binaries that people have built: to change one is to break
// every plugin.
func TestWhatIsFrozen(t *testing.T) {
	h := wire.Handshake()
	if h.MagicCookieKey != "BERTH_PLUGIN" || h.MagicCookieValue != "6c1f3f0e0d3a4b6f9f0c6a7b1d2e8a45" || h.ProtocolVersion != 0 {
		t.Errorf("handshake %+v", h)
	}
	if wire.ProtocolV1 != 1 || wire.PluginName != "provider" || wire.BinaryPrefix != "berth-provider-" || wire.LifelineEnv != "BERTH_LIFELINE_FD" {
		t.Error("a name of the protocol has changed")
	}
	if name := berthv1.Provider_ServiceDesc.ServiceName; name != "berth.v1.Provider" {
		t.Errorf("service %q", name)
	}
}

// A message over the cap is an error of that call alone, in both directions, also
// where only one side keeps to it.
func TestMessageCap(t *testing.T) {
	greedy := []grpc.ServerOption{grpc.MaxRecvMsgSize(2<<30 - 1)}
	for name, p := range map[string]*peer{
		"both":             newPeer(t),
		"the host alone":   newPeerWith(t, greedy, wire.DialOptions()),
		"the plugin alone": newPeerWith(t, wire.ServerOptions(), nil),
	} {
		t.Run(name, func(t *testing.T) {
			read := func(size int) (int, error) {
				p.mu.Lock()
				p.out = []*berthv1.ReadFileResponse{{Message: &berthv1.ReadFileResponse_Data{Data: make([]byte, size)}}}
				p.mu.Unlock()
				stream, err := p.client.ReadFile(t.Context(), &berthv1.ReadFileRequest{})
				if err != nil {
					return 0, err
				}
				msg, err := stream.Recv()
				if err != nil {
					return 0, err
				}
				if _, err = stream.Recv(); !errors.Is(err, io.EOF) {
					t.Errorf("after the message: %v", err)
				}
				return len(msg.GetData()), nil
			}
			if n, err := read(wire.MaxMessage - 100); err != nil || n != wire.MaxMessage-100 {
				t.Errorf("the largest message: %d bytes, %v", n, err)
			}
			if _, err := p.client.Stat(t.Context(), &berthv1.StatRequest{Path: make([]byte, wire.MaxMessage-100)}); err != nil {
				t.Errorf("the largest request: %v", err)
			}
			if _, err := read(64 << 20); status.Code(err) != codes.ResourceExhausted || wire.Answered(err) {
				t.Errorf("an answer of 64 MiB: %v", err)
			}
			if _, err := p.client.Stat(t.Context(), &berthv1.StatRequest{Path: make([]byte, 64<<20)}); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a request of 64 MiB: %v", err)
			}
			if err := p.cross(t.Context(), workspace.ErrReadOnly); !errors.Is(err, workspace.ErrReadOnly) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// Headers over the limit are refused before they are sent, so that they cost a
// call and not the connection with all others on it.
func TestHeaderLimit(t *testing.T) {
	for name, p := range map[string]*peer{
		"both":             newPeer(t),
		"the host alone":   newPeerWith(t, nil, wire.DialOptions()),
		"the plugin alone": newPeerWith(t, wire.ServerOptions(), nil),
	} {
		t.Run(name, func(t *testing.T) {
			if err := p.cross(t.Context(), nil); err != nil { // each side has the other's settings now
				t.Fatal(err)
			}
			stream, err := p.client.ReadFile(t.Context(), &berthv1.ReadFileRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if name != "the host alone" {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "x-filler", strings.Repeat("x", wire.MaxHeaders))
				if _, err := p.client.Stat(ctx, &berthv1.StatRequest{}); status.Code(err) != codes.Internal {
					t.Errorf("a header over the limit: %v", err)
				}
			}
			if name != "the plugin alone" {
				st := status.New(codes.DataLoss, strings.Repeat("m", wire.MaxHeaders))
				if err := p.answer(t.Context(), st.Err()); status.Code(err) != codes.Internal {
					t.Errorf("a status over the limit: code %v", status.Code(err))
				}
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("another call: %v", err)
			}
		})
	}
}

// A reader who pauses holds up one stream: others on the same connection go on,
// and what waits for it is bounded (contract C10).
func TestC10_PausedStreamDelaysNoOther(t *testing.T) {
	p := newPeer(t)
	const chunks = 512 // 64 MiB
	chunk := bytes.Repeat([]byte{'x'}, wire.ChunkSize)
	p.mu.Lock()
	for range chunks {
		p.out = append(p.out, &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: chunk}})
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a stall ends the test
	defer cancel()
	var paused []grpc.ServerStreamingClient[berthv1.ReadFileResponse]
	for range 20 { // 20 windows of a stream are more than that of the connection
		stream, err := p.client.ReadFile(ctx, &berthv1.ReadFileRequest{Path: []byte("paused")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		paused = append(paused, stream)
	}
	for range 100 {
		if _, err := p.client.Stat(ctx, &berthv1.StatRequest{}); err != nil {
			t.Fatalf("beside paused streams: %v", err)
		}
	}
	// Whole other files pass, too. A dynamic window would grow while they do.
	for range 3 {
		if read, err := readAll(ctx, p.client); err != nil || read != chunks {
			t.Fatalf("%d chunks of %d, %v", read, chunks, err)
		}
	}
	p.mu.Lock()
	sent := p.sent["paused"] * wire.ChunkSize / len(paused)
	p.mu.Unlock()
	// The window, the server's own buffer of 64 KiB, and a chunk at each end.
	if most := wire.StreamWindow + 64<<10 + 3*wire.ChunkSize; sent > most {
		t.Errorf("%d bytes were sent to a paused reader, want at most %d", sent, most)
	}
	// And a paused one goes on where it was.
	for range chunks - 1 {
		if _, err := paused[0].Recv(); err != nil {
			t.Fatalf("the paused stream: %v", err)
		}
	}
}

// readAll reads a file and counts its chunks.
func readAll(ctx context.Context, client berthv1.ProviderClient) (int, error) {
	stream, err := client.ReadFile(ctx, &berthv1.ReadFileRequest{})
	if err != nil {
		return 0, err
	}
	for n := 0; ; n++ {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}
