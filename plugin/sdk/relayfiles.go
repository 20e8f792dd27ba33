package sdk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// guestFiles is the files of a workspace with a guest, as far as they are more
// than streams.
type guestFiles struct {
	server *server
	entry  *entry
}

var (
	_ fileOps    = guestFiles{}
	_ RealPather = guestFiles{}
	_ Renamer    = guestFiles{}
	_ Linker     = guestFiles{}
	_ Chmoder    = guestFiles{}
	_ Chtimer    = guestFiles{}
)

func (f guestFiles) call() guestCall { return guestCall{server: f.server, id: f.entry.id} }

// Stat follows links.
func (f guestFiles) Stat(ctx context.Context, file string) (workspace.FileInfo, error) {
	answer, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.StatResponse, error) {
		return c.Stat(ctx, &berthv1.StatRequest{Workspace: key, Path: []byte(file)}, guestLimit)
	})
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return f.call().checkInfo(answer.GetInfo(), false)
}

// Lstat does not follow the last link.
func (f guestFiles) Lstat(ctx context.Context, file string) (workspace.FileInfo, error) {
	answer, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.LstatResponse, error) {
		return c.Lstat(ctx, &berthv1.LstatRequest{Workspace: key, Path: []byte(file)}, guestLimit)
	})
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return f.call().checkInfo(answer.GetInfo(), false)
}

// MkdirAll makes a directory and its parents.
func (f guestFiles) MkdirAll(ctx context.Context, dir string) error {
	_, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.MkdirAllResponse, error) {
		return c.MkdirAll(ctx, &berthv1.MkdirAllRequest{Workspace: key, Path: []byte(dir)}, guestLimit)
	})
	return err
}

// Remove takes a file, a link itself, or a tree.
func (f guestFiles) Remove(ctx context.Context, file string) error {
	_, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.RemoveResponse, error) {
		return c.Remove(ctx, &berthv1.RemoveRequest{Workspace: key, Path: []byte(file)}, guestLimit)
	})
	return err
}

// RealPath resolves as realpath -m does.
func (f guestFiles) RealPath(ctx context.Context, file string) (string, error) {
	answer, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.RealPathResponse, error) {
		return c.RealPath(ctx, &berthv1.RealPathRequest{Workspace: key, Path: []byte(file)}, guestLimit)
	})
	if err != nil {
		return "", err
	}
	resolved := string(answer.GetPath())
	if !path.IsAbs(resolved) || strings.IndexByte(resolved, 0) >= 0 {
		return "", f.call().nonsense("with %q, which is no absolute path", shorten(resolved))
	}
	return resolved, nil
}

// Rename moves a file or a tree.
func (f guestFiles) Rename(ctx context.Context, from, to string) error {
	_, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.RenameResponse, error) {
		return c.Rename(ctx, &berthv1.RenameRequest{Workspace: key, From: []byte(from), To: []byte(to)}, guestLimit)
	})
	return err
}

// Symlink makes a link.
func (f guestFiles) Symlink(ctx context.Context, target, file string) error {
	_, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.SymlinkResponse, error) {
		return c.Symlink(ctx, &berthv1.SymlinkRequest{Workspace: key, Target: []byte(target), Path: []byte(file)}, guestLimit)
	})
	return err
}

// Readlink tells what a link holds.
func (f guestFiles) Readlink(ctx context.Context, file string) (string, error) {
	answer, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.ReadlinkResponse, error) {
		return c.Readlink(ctx, &berthv1.ReadlinkRequest{Workspace: key, Path: []byte(file)}, guestLimit)
	})
	if err != nil {
		return "", err
	}
	target := string(answer.GetTarget())
	if strings.IndexByte(target, 0) >= 0 {
		return "", f.call().nonsense("with a link's target that holds a NUL")
	}
	return target, nil
}

// Chmod changes permissions.
func (f guestFiles) Chmod(ctx context.Context, file string, mode fs.FileMode) error {
	_, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.ChmodResponse, error) {
		return c.Chmod(ctx, &berthv1.ChmodRequest{Workspace: key, Path: []byte(file), Mode: wire.FromFileMode(mode)}, guestLimit)
	})
	return err
}

// Chtimes changes the modification time.
func (f guestFiles) Chtimes(ctx context.Context, file string, modTime time.Time) error {
	_, err := callGuest(ctx, f.server, f.entry, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.ChtimesResponse, error) {
		return c.Chtimes(ctx, &berthv1.ChtimesRequest{Workspace: key, Path: []byte(file), ModTime: wire.FromTime(modTime)}, guestLimit)
	})
	return err
}

// relayRead hands a file on, chunk by chunk: the guest is held back where the
// host does not take it.
func (s *server) relayRead(c fileCall, req *berthv1.ReadFileRequest, host grpc.ServerStreamingServer[berthv1.ReadFileResponse]) error {
	ctx, cancel := context.WithCancel(host.Context())
	g, err := s.guest(ctx, c.entry)
	if err != nil {
		cancel()
		return err
	}
	defer g.release()
	defer cancel() // before the release
	guest, err := g.conn.Client.ReadFile(ctx, &berthv1.ReadFileRequest{
		Workspace: g.conn.Key, Path: []byte(c.abs), Offset: req.GetOffset(), Length: req.GetLength(),
	}, guestLimit)
	if err != nil {
		return g.failure(ctx, err)
	}
	var sent int64
	for first := true; ; {
		m := new(berthv1.ReadFileResponse)
		chunk, n, err := wire.ReceiveChunk(guest, m)
		if errors.Is(err, io.EOF) {
			return g.nonsense("with a file that has no end")
		}
		if err != nil {
			return g.failure(ctx, err)
		}
		if chunk != nil {
			switch {
			case first:
				return g.nonsense("with data before saying what the file is")
			case n == 0:
				continue
			case req.GetLength() > 0 && sent+int64(n) > req.GetLength():
				return g.nonsense("with more than the %d bytes asked for", req.GetLength())
			}
			sent += int64(n)
			if err := host.SendMsg(chunk); err != nil {
				return err
			}
			continue
		}
		switch m := m.GetMessage().(type) {
		case *berthv1.ReadFileResponse_Info:
			info, err := g.checkInfo(m.Info, false)
			switch {
			case err != nil:
				return err
			case !first:
				return g.nonsense("twice what the file is")
			}
			first = false
			if err := host.Send(&berthv1.ReadFileResponse{Message: &berthv1.ReadFileResponse_Info{Info: wire.FromFileInfo(info)}}); err != nil {
				return err
			}
		case *berthv1.ReadFileResponse_End:
			switch {
			case first:
				return g.nonsense("with the end of a file before saying what it is")
			case m.End != sent:
				return g.nonsense("that the file has %d bytes, after %d", m.End, sent)
			}
			return host.Send(&berthv1.ReadFileResponse{Message: m})
		default: // of a newer version
		}
	}
}

// relayWrite hands an upload on. The guest may refuse it at any time.
func (s *server) relayWrite(c fileCall, start *berthv1.WriteFileStart, host uploadStream) error {
	ctx, cancel := context.WithCancelCause(host.Context())
	g, err := s.guest(ctx, c.entry)
	if err != nil {
		cancel(nil)
		return err
	}
	defer g.release()
	defer cancel(nil) // before the release
	guest, err := g.conn.Client.WriteFile(ctx, guestLimit)
	if err == nil {
		err = guest.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{
			Workspace: g.conn.Key, Path: []byte(c.abs), Mode: start.Mode,
			Exclusive: start.GetExclusive(), Append: start.GetAppend(), ModTime: start.GetModTime(),
		}}})
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the answer tells
		return g.failure(ctx, err)
	}
	var ended atomic.Bool
	var sent atomic.Int64
	s.goSafely("relaying a write", func() {
		if err := forwardFile(host, guest, &sent, &ended); err != nil {
			cancel(err) // nothing of it may be published
		}
	})
	answer := new(berthv1.WriteFileResponse)
	if err := guest.RecvMsg(answer); err != nil {
		if errors.Is(err, io.EOF) {
			return g.nonsense("nothing to a write")
		}
		return g.failure(ctx, err)
	}
	switch {
	case !ended.Load():
		return g.nonsense("a write before its end")
	case answer.GetWritten() != sent.Load():
		return g.nonsense("that it wrote %d bytes of %d", answer.GetWritten(), sent.Load())
	}
	return host.SendAndClose(&berthv1.WriteFileResponse{Written: answer.GetWritten()})
}

// forwardFile hands on what the host sends, up to `end`. A guest that has answered
// takes no more, which is no error here.
func forwardFile(host uploadStream, guest grpc.ClientStreamingClient[berthv1.WriteFileRequest, berthv1.WriteFileResponse], sent *atomic.Int64, ended *atomic.Bool) error {
	for {
		part, length, err := nextPart(host, sent.Load())
		if err != nil {
			return err
		}
		if part == nil {
			ended.Store(true)
			if guest.Send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: sent.Load()}}) == nil {
				_ = guest.CloseSend() // the answer tells how it went
			}
			return nil
		}
		sent.Add(int64(length))
		if guest.SendMsg(part) != nil { // over; receiving tells why
			return nil //nolint:nilerr // as said
		}
	}
}

// relayList hands a listing on, message by message.
func (s *server) relayList(c fileCall, host grpc.ServerStreamingServer[berthv1.ReadDirResponse]) error {
	ctx, cancel := context.WithCancel(host.Context())
	g, err := s.guest(ctx, c.entry)
	if err != nil {
		cancel()
		return err
	}
	defer g.release()
	defer cancel() // before the release
	guest, err := g.conn.Client.ReadDir(ctx, &berthv1.ReadDirRequest{Workspace: g.conn.Key, Path: []byte(c.abs)}, guestLimit)
	if err != nil {
		return g.failure(ctx, err)
	}
	last, count := "", 0
	for {
		m, err := guest.Recv()
		if errors.Is(err, io.EOF) {
			return g.nonsense("with a listing that has no end")
		}
		if err != nil {
			return g.failure(ctx, err)
		}
		out := &berthv1.ReadDirResponse{End: m.GetEnd(), Entries: make([]*berthv1.FileInfo, 0, len(m.GetEntries()))}
		for _, entry := range m.GetEntries() {
			info, err := g.checkInfo(entry, true)
			switch {
			case err != nil:
				return err
			case info.Name <= last:
				return g.nonsense("with a listing that is not sorted: %q after %q", shorten(info.Name), shorten(last))
			case count == maxListing:
				return g.nonsense("with more than %d entries", maxListing)
			}
			last = info.Name
			count++
			out.Entries = append(out.Entries, wire.FromFileInfo(info))
		}
		if len(out.Entries) == 0 && !out.End {
			continue
		}
		if err := host.Send(out); err != nil || out.End {
			return err
		}
	}
}

// maxListing is how many entries of one directory a guest is believed: as many as
// a host believes a plugin.
const maxListing = 10_000_000
