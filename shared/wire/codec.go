package wire

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// codec is gRPC's own for protobuf, the same on the wire, with buffers that fit:
// gRPC has none between 32 KiB and 1 MiB, and clears all of one for each message, so
// that a chunk costs eight times its size at either end.
type codec struct{ pool *bufferPool }

func newCodec() codec { return codec{&buffers} }

// Name is the content's subtype.
func (codec) Name() string { return "proto" }

// Marshal encodes a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if chunk, ok := v.(*Chunk); ok {
		return chunk.take(), nil
	}
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encoding a message: %T is none of protobuf", v)
	}
	buf := c.pool.Get(proto.Size(m))
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buf)[:0], m)
	if err != nil {
		c.pool.Put(buf)
		return nil, err
	}
	*buf = data
	return mem.BufferSlice{mem.NewBuffer(buf, c.pool)}, nil
}

// Unmarshal decodes a message, which shares no memory with the data but for a
// [Chunk].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if chunk, ok := v.(*Chunk); ok {
		data.Ref()
		chunk.give(data, c.pool)
		return nil
	}
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decoding a message: %T is none of protobuf", v)
	}
	buf := data.MaterializeToBuffer(c.pool)
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m)
}

const (
	// pooledAbove is from where on a buffer is worth keeping.
	pooledAbove = 4 << 10
	// pooledSize is a message with a chunk in it: what is around that takes a few
	// bytes. A larger message is rare.
	pooledSize = ChunkSize + 4<<10
)

// buffers are those of all connections: none stays with one that is idle.
var buffers bufferPool

// bufferPool keeps buffers of one size. They are not cleared: a codec writes a buffer
// before it reads it.
type bufferPool struct{ pool sync.Pool }

// Get returns a buffer of a length.
func (p *bufferPool) Get(length int) *[]byte {
	if pooledAbove < length && length <= pooledSize {
		if buf, ok := p.pool.Get().(*[]byte); ok {
			*buf = (*buf)[:length]
			return buf
		}
		buf := make([]byte, length, pooledSize)
		return &buf
	}
	buf := make([]byte, length)
	return &buf
}

// Put gives a buffer back.
func (p *bufferPool) Put(buf *[]byte) {
	if cap(*buf) == pooledSize {
		p.pool.Put(buf)
	}
}
