package wire

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// chunkField is the number of the field for a chunk in the messages that files
// travel in: ReadFileResponse and WriteFileRequest.
const chunkField protowire.Number = 2

// Chunk is one message of a file's stream as it is on the wire, received or sent
// with RecvMsg or SendMsg in place of the decoded one: a chunk of the file is neither
// copied nor left to the garbage collector. It needs a connection with the options of
// this package at this end, and nothing of the other.
type Chunk struct {
	message mem.BufferSlice
	header  int // bytes before the data; 0 if it is not data alone
	length  int // of the data
	pool    *bufferPool
}

// give has the chunk own a message.
func (c *Chunk) give(message mem.BufferSlice, pool *bufferPool) {
	*c = Chunk{message: message, pool: pool}
	var start [maxChunkHeader]byte
	n := message.CopyTo(start[:])
	number, kind, tagged := protowire.ConsumeTag(start[:n])
	if tagged < 0 || number != chunkField || kind != protowire.BytesType {
		return
	}
	length, sized := protowire.ConsumeVarint(start[tagged:n])
	if sized < 0 || length != uint64(message.Len()-tagged-sized) { //nolint:gosec // no part of a message is longer than it
		return
	}
	c.header, c.length = tagged+sized, int(length) //nolint:gosec // as said
}

// maxChunkHeader is a tag and a length, as long as protobuf lets them be.
const maxChunkHeader = 20

// take gives the message away.
func (c *Chunk) take() mem.BufferSlice {
	message := c.message
	*c = Chunk{}
	return message
}

// Bytes are the data, until the chunk is freed or sent.
func (c *Chunk) Bytes() []byte {
	if len(c.message) > 1 {
		whole := c.message.MaterializeToBuffer(c.pool)
		c.message.Free()
		c.message = mem.BufferSlice{whole}
	}
	if len(c.message) == 0 {
		return nil
	}
	return c.message[0].ReadOnlyData()[c.header:]
}

// Free gives the memory back. To send a chunk does so too.
func (c *Chunk) Free() {
	message := c.take()
	message.Free()
}

// ReceiveChunk receives the next message of a file's stream: as a chunk and its
// length if it is data, else into m, and the chunk is nil.
func ReceiveChunk(stream interface{ RecvMsg(any) error }, m interface {
	proto.Message
	GetData() []byte
},
) (*Chunk, int, error) {
	c := new(Chunk)
	if err := stream.RecvMsg(c); err != nil {
		return nil, 0, err
	}
	if c.header > 0 {
		return c, c.length, nil
	}
	defer c.Free()
	if err := (codec{c.pool}).Unmarshal(c.message, m); err != nil {
		return nil, 0, status.Errorf(codes.Internal, "decoding a message of a file's stream: %v", err) // as gRPC does
	}
	data := m.GetData()
	if len(data) == 0 {
		return nil, 0, nil
	}
	return newChunk(mem.SliceBuffer(data), len(data)), len(data), nil // with more, of a newer version
}

// newChunk makes a chunk of data, which it owns.
func newChunk(data mem.Buffer, length int) *Chunk {
	header := protowire.AppendVarint(protowire.AppendTag(nil, chunkField, protowire.BytesType), uint64(length)) //nolint:gosec // the length of a slice
	return &Chunk{message: mem.BufferSlice{mem.SliceBuffer(header), data}, header: len(header), length: length, pool: &buffers}
}

// ReadChunk makes a chunk of what read gives, once, as an [io.Reader] does: of at most
// most bytes, and no more than [ChunkSize]. Without any the chunk is nil.
func ReadChunk(most int64, read func([]byte) (int, error)) (chunk *Chunk, n int, err error) {
	buf := buffers.Get(int(min(most, ChunkSize)))
	n, err = read(*buf)
	if n == 0 {
		buffers.Put(buf)
		return nil, 0, err
	}
	*buf = (*buf)[:n]
	return newChunk(mem.NewBuffer(buf, &buffers), n), n, err
}
