package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// arriving is a stream on which a message arrives in pieces.
type arriving struct {
	data  []byte
	piece int
}

func (a arriving) RecvMsg(v any) error {
	var pieces mem.BufferSlice
	for rest := a.data; len(rest) > 0; {
		n := min(a.piece, len(rest))
		pieces, rest = append(pieces, mem.Copy(rest[:n], &buffers)), rest[n:]
	}
	defer pieces.Free() // as gRPC does when its codec has returned
	return newCodec().Unmarshal(pieces, v)
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What one end sends as a chunk is the same message to an end that knows of none, and
// the reverse, in whatever pieces it arrives.
func TestChunkIsTheMessage(t *testing.T) {
	theirs := encoding.GetCodecV2(grpcproto.Name)
	for _, size := range []int{1, 127, 128, 5000, ChunkSize} {
		want := bytes.Repeat([]byte("x"), size)
		made, n, err := ReadChunk(1<<40, bytes.NewReader(want).Read)
		if err != nil || n != size {
			t.Fatalf("%d bytes of %d, %v", n, size, err)
		}
		sent, err := newCodec().Marshal(made)
		if err != nil {
			t.Fatal(err)
		}
		var known berthv1.WriteFileRequest
		if err := theirs.Unmarshal(sent, &known); err != nil || !bytes.Equal(known.GetData(), want) {
			t.Errorf("%d bytes arrived as %d, %v", size, len(known.GetData()), err)
		}
		sent.Free()
		for _, piece := range []int{1, 3, 16 << 10, 1 << 20} {
			if size > 5000 && piece < 1000 {
				continue
			}
			message := marshal(t, &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: want}})
			chunk, length, err := ReceiveChunk(arriving{message, piece}, new(berthv1.ReadFileResponse))
			if err != nil || chunk == nil || length != size || !bytes.Equal(chunk.Bytes(), want) {
				t.Fatalf("%d bytes in pieces of %d: %v, %d bytes, %v", size, piece, chunk != nil, length, err)
			}
			again, err := newCodec().Marshal(chunk)
			if err != nil || !bytes.Equal(again.Materialize(), message) {
				t.Errorf("%d bytes in pieces of %d are handed on as something else: %v", size, piece, err)
			}
			again.Free()
		}
	}
}

func TestReceiveChunkOfWhatElseArrives(t *testing.T) {
	data := marshal(t, &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: []byte("abc")}})
	newer := protowire.AppendVarint(protowire.AppendTag(bytes.Clone(data), 100, protowire.VarintType), 1)
	twice := append(bytes.Clone(data), marshal(t, &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: []byte("de")}})...)
	empty := marshal(t, &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Data{Data: []byte{}}})
	end := marshal(t, &berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_End{End: 7}})
	for _, test := range []struct {
		name, message string
		chunk         string // "-" for none
		fails         bool
	}{
		{"data", string(data), "abc", false},
		{"data and more", string(newer), "abc", false},
		{"data twice", string(twice), "de", false}, // as protobuf has it: the last counts
		{"no data", string(empty), "", false},
		{"the end", string(end), "-", false},
		{"nothing", "", "-", false},
		{"less than its length", string(data[:len(data)-1]), "-", true},
		{"half a tag", "\x92", "-", true},
		{"an endless length", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "-", true},
	} {
		m := new(berthv1.ReadFileResponse)
		chunk, n, err := ReceiveChunk(arriving{[]byte(test.message), 2}, m)
		got := "-"
		if chunk != nil {
			got = string(chunk.Bytes())
		}
		if got != test.chunk || (err != nil) != test.fails || chunk != nil && n != len(got) {
			t.Errorf("%s: %q of %d bytes, %v", test.name, got, n, err)
		}
		if test.name == "the end" && m.GetEnd() != 7 {
			t.Errorf("the end is %v", m)
		}
	}
}

func TestReadChunk(t *testing.T) {
	chunk, n, err := ReadChunk(3, bytes.NewReader([]byte("abcdef")).Read)
	if err != nil || n != 3 || string(chunk.Bytes()) != "abc" {
		t.Errorf("%d bytes, %v", n, err)
	}
	if chunk, n, err = ReadChunk(3, bytes.NewReader(nil).Read); chunk != nil || n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%v, %d bytes, %v", chunk, n, err)
	}
}
