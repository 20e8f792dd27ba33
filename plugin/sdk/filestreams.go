package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// maxEmptyReads is how often a reader may give nothing and no error before it is
// called broken.
const maxEmptyReads = 100

// ReadFile streams a file from any offset.
func (s *server) ReadFile(req *berthv1.ReadFileRequest, stream grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
	ctx := stream.Context()
	return s.withFile(ctx, opOpen, req.GetWorkspace(), req.GetPath(), func(c fileCall) (err error) {
		if req.GetOffset() < 0 || req.GetLength() < 0 {
			return fmt.Errorf("offset %d, length %d: negative: %w", req.GetOffset(), req.GetLength(), workspace.ErrInvalid)
		}
		if c.entry.target != nil {
			return s.relayRead(c, req, stream) //nolint:contextcheck // the stream's own
		}
		reader, err := c.content().Open(ctx, c.abs, workspace.ReadOptions{Offset: req.GetOffset(), Length: req.GetLength()})
		if err != nil {
			return err
		}
		if isNil(reader) {
			return errors.New("the provider returned no reader and no error")
		}
		defer func() {
			if closeErr := reader.Close(); closeErr != nil {
				s.logger.Debug("closing a file that was read", "error", s.redactor.text(closeErr.Error()))
			}
		}()
		if err := stream.Send(&berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Info{Info: wire.FromFileInfo(reader.Info())}}); err != nil {
			return err
		}
		sent, err := sendFile(stream, reader, cmp.Or(req.GetLength(), math.MaxInt64))
		if err != nil {
			return err
		}
		return stream.Send(&berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_End{End: sent}})
	})
}

// sendFile sends at most most bytes of r in chunks.
func sendFile(stream grpc.ServerStreamingServer[berthv1.ReadFileResponse], r io.Reader, most int64) (sent int64, err error) {
	for sent < most {
		chunk, n, readErr := wire.ReadChunk(most-sent, func(p []byte) (int, error) { return readFull(r, p) })
		if chunk != nil {
			if err := stream.SendMsg(chunk); err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		if errors.Is(readErr, io.EOF) {
			return sent, nil
		}
		if readErr != nil {
			return sent, readErr
		}
	}
	return sent, nil
}

// readFull fills chunk, or reads to the end or an error. Unlike io.ReadFull it
// does not take a reader's word for what cannot be.
func readFull(r io.Reader, chunk []byte) (n int, err error) {
	empty := 0
	for n < len(chunk) && err == nil {
		var got int
		got, err = r.Read(chunk[n:])
		if got < 0 || got > len(chunk)-n {
			return n, fmt.Errorf("the provider's reader gave %d bytes of %d", got, len(chunk)-n)
		}
		if n += got; got > 0 {
			empty = 0
		} else if empty++; empty > maxEmptyReads {
			return n, io.ErrNoProgress
		}
	}
	return n, err
}

type uploadStream = grpc.ClientStreamingServer[berthv1.WriteFileRequest, berthv1.WriteFileResponse]

// WriteFile takes a file in chunks. Anything but `end` leaves it as it was.
func (s *server) WriteFile(stream uploadStream) error {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("write: receiving the first message: %w", err)
	}
	start := first.GetStart()
	if start == nil {
		return fmt.Errorf("write: the first message is not start: %w", workspace.ErrInvalid)
	}
	return s.withFile(ctx, opCreate, start.GetWorkspace(), start.GetPath(), func(c fileCall) error {
		opts, err := writeOptions(start, c.entry.features)
		if err != nil {
			return err
		}
		if c.entry.target != nil {
			return s.relayWrite(c, start, stream) //nolint:contextcheck // the stream's own
		}
		writer, err := c.content().Create(ctx, c.abs, opts)
		if err != nil {
			return err
		}
		if isNil(writer) {
			return errors.New("the provider returned no writer and no error")
		}
		published := false
		defer func() {
			if published {
				return
			}
			if abortErr := writer.Abort(); abortErr != nil {
				s.logger.Warn("aborting a write", "error", s.redactor.text(abortErr.Error()))
			}
		}()
		written, err := receiveFile(stream, writer)
		if err != nil {
			return err
		}
		if err := writer.Close(); err != nil {
			return err
		}
		published = true
		return stream.SendAndClose(&berthv1.WriteFileResponse{Written: written})
	})
}

func writeOptions(start *berthv1.WriteFileStart, features workspace.Features) (workspace.WriteOptions, error) {
	opts := workspace.WriteOptions{
		Mode:      permissions(start.GetMode()),
		Exclusive: start.GetExclusive(),
		Append:    start.GetAppend(),
		ModTime:   wire.ToTime(start.GetModTime()),
	}
	for _, option := range []struct {
		asked   bool
		feature workspace.Feature
	}{
		{opts.Exclusive, workspace.FeatureExclusive},
		{opts.Append, workspace.FeatureAppend},
		{!opts.ModTime.IsZero(), workspace.FeatureChtimes},
	} {
		if option.asked && !features.Has(option.feature) {
			return opts, unsupported("this workspace lacks %s", option.feature)
		}
	}
	return opts, nil
}

// receiveFile writes what comes up to `end`.
func receiveFile(stream uploadStream, w io.Writer) (written int64, err error) {
	for {
		part, length, err := nextPart(stream, written)
		if err != nil || part == nil {
			return written, err
		}
		n, err := w.Write(part.Bytes())
		part.Free()
		if err == nil && n != length {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, err
		}
		written += int64(n)
	}
}

// nextPart receives the next data of an upload of which so many bytes have come, or
// nil at its end, whose count must be right.
func nextPart(stream uploadStream, received int64) (part *wire.Chunk, length int, err error) {
	for {
		message := new(berthv1.WriteFileRequest)
		part, length, err := wire.ReceiveChunk(stream, message)
		if errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("the upload broke off after %d bytes: %w", received, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("receiving the upload after %d bytes: %w", received, err)
		}
		if part != nil {
			return part, length, nil
		}
		switch m := message.GetMessage().(type) {
		case *berthv1.WriteFileRequest_End:
			if m.End != received {
				return nil, 0, fmt.Errorf("the upload has %d bytes, %d were announced at its end: %w", received, m.End, workspace.ErrInvalid)
			}
			return nil, 0, nil
		case *berthv1.WriteFileRequest_Start:
			return nil, 0, fmt.Errorf("a second start: %w", workspace.ErrInvalid)
		}
	}
}

// ReadDir sends a listing in messages of about a chunk's size.
func (s *server) ReadDir(req *berthv1.ReadDirRequest, stream grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
	ctx := stream.Context()
	return s.withFile(ctx, opReadDir, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		if c.entry.target != nil {
			return s.relayList(c, stream) //nolint:contextcheck // the stream's own
		}
		infos, err := c.content().ReadDir(ctx, c.abs)
		if err != nil {
			return err
		}
		byName := func(a, b workspace.FileInfo) int { return cmp.Compare(a.Name, b.Name) }
		if !slices.IsSortedFunc(infos, byName) {
			infos = slices.Clone(infos) // it may be the provider's own
			slices.SortFunc(infos, byName)
		}
		batch, size := &berthv1.ReadDirResponse{}, 0
		for _, info := range infos {
			message := wire.FromFileInfo(info)
			own := proto.Size(message)
			if size > 0 && size+own > wire.ChunkSize {
				if err := stream.Send(batch); err != nil {
					return err
				}
				batch, size = &berthv1.ReadDirResponse{}, 0
			}
			batch.Entries = append(batch.Entries, message)
			size += own
		}
		batch.End = true
		return stream.Send(batch)
	})
}
