package wire

import (
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// ProtocolV1 is the version of the protocol berth.v1 in go-plugin's handshake.
const ProtocolV1 = 1

// PluginName is the one thing that a plugin dispenses, in every version.
const PluginName = "provider"

// BinaryPrefix begins the name of every plugin binary: berth-provider-NAME.
const BinaryPrefix = "berth-provider-"

// LifelineEnv names the variable that holds the number of a file descriptor
// which the host keeps open at its other end. When it reads end of file, the
// host is gone, and the plugin ends at once with all that it started outside a
// workspace (contract B4). The plugin must not let its children inherit it.
const LifelineEnv = "BERTH_LIFELINE_FD"

// Handshake tells a plugin binary that it was started by a Berth host. It is
// no secret and no protection.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		MagicCookieKey:   "BERTH_PLUGIN",
		MagicCookieValue: "6c1f3f0e0d3a4b6f9f0c6a7b1d2e8a45",
	}
}

// Sizes that both sides keep.
const (
	// MaxMessage is the most bytes in one message. Whatever may be larger is
	// streamed in chunks, so this only ever stops a faulty peer.
	MaxMessage = 16 << 20
	// ChunkSize is how many bytes of a file or of output go into one message.
	ChunkSize = 128 << 10
	// RunWindow is how many bytes of a run's output are kept for a host that
	// has not taken them, and how many of its stdin are under way (contract C10).
	RunWindow = 1 << 20
	// StreamWindow is gRPC's window of one stream. Static: a dynamic one grows
	// to 16 MiB, and a slow reader's pending bytes with it.
	StreamWindow = 1 << 20
	// ConnWindow is gRPC's window of one connection. It is given back when bytes
	// arrive, not when they are read, so a slow stream does not hold it.
	ConnWindow = 8 << 20
	// Buffer is how much is read from a connection, or written to it, at once. With
	// gRPC's own default, half of it, a file takes a third more system calls at each
	// end. A buffer for writing is held only while something is written.
	Buffer = 64 << 10
	// MaxHeaders is gRPC's limit on the headers of one call, which hold an
	// error's status with its detail. It is set on both sides: gRPC's own default
	// differs between releases, and a header over it ends the whole connection.
	MaxHeaders = 2 << 20
	// MaxErrorText is how much of each text of an error crosses, in bytes: its
	// message, its path, its cause and so on. All of one detail together, base64
	// in a header, stay well under MaxHeaders.
	MaxErrorText = 64 << 10
	// maxErrorWord is the same for what is a word or two: an operation, the name
	// of a provider or run, an exit status.
	maxErrorWord = 1 << 10
	// MaxRunRegistry is the longest name of what notes the ids of a workspace's
	// runs, in bytes: far more than it takes to be the only one.
	MaxRunRegistry = 64
	// maxStatusMessage is how much ASCII stands in the status itself.
	maxStatusMessage = 4 << 10
)

// ServerOptions are those that every server of berth.v1 needs.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxHeaderListSize(MaxHeaders),
		grpc.StaticStreamWindowSize(StreamWindow),
		grpc.StaticConnWindowSize(ConnWindow),
		grpc.ReadBufferSize(Buffer),
		grpc.WriteBufferSize(Buffer),
		grpc.ForceServerCodecV2(newCodec()),
	}
}

// DialOptions are those that every client of berth.v1 needs. They go last:
// go-plugin sets caps of 2 GiB before them.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessage),
			grpc.MaxCallSendMsgSize(MaxMessage),
			grpc.ForceCodecV2(newCodec()),
		),
		grpc.WithMaxHeaderListSize(MaxHeaders),
		grpc.WithStaticStreamWindowSize(StreamWindow),
		grpc.WithStaticConnWindowSize(ConnWindow),
		grpc.WithReadBufferSize(Buffer),
		grpc.WithWriteBufferSize(Buffer),
	}
}
