package sdk

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// What errors call each operation, as in os where that has one.
const (
	opStat     = "stat"
	opLstat    = "lstat"
	opReadDir  = "readdir"
	opOpen     = "open"
	opCreate   = "create"
	opMkdir    = "mkdir"
	opRemove   = "remove"
	opRename   = "rename"
	opSymlink  = "symlink"
	opReadlink = "readlink"
	opChmod    = "chmod"
	opChtimes  = "chtimes"
	opRealPath = "realpath"
)

// fileCall is one operation on a path in an attached workspace.
type fileCall struct {
	op    string
	path  string // as the caller gave it
	abs   string // as the workspace is to have it
	entry *entry
	files fileOps
}

// fileOps is a workspace's files but for their content, which streams.
type fileOps interface {
	Stat(ctx context.Context, path string) (workspace.FileInfo, error)
	Lstat(ctx context.Context, path string) (workspace.FileInfo, error)
	MkdirAll(ctx context.Context, path string) error
	Remove(ctx context.Context, path string) error
}

// content is for workspaces without a guest: its streams are handed on as they are.
func (c fileCall) content() Filesystem { return c.files.(Filesystem) }

// withFile attaches, resolves path and calls do; what that returns becomes an
// error on the caller's path.
func (s *server) withFile(ctx context.Context, op string, key *berthv1.WorkspaceKey, path []byte, do func(fileCall) error) error {
	call := fileCall{op: op, path: string(path)}
	if err := workspace.ValidatePath(op, call.path); err != nil {
		return err
	}
	return s.withWorkspace(ctx, key, func(e *entry) error {
		call.entry, call.files, call.abs = e, s.files(e), e.path(call.path)
		if call.files == nil {
			return pathError(op, call.path, errors.ErrUnsupported)
		}
		return pathError(op, call.path, do(call))
	})
}

// files are those of a workspace, or nil.
func (s *server) files(e *entry) fileOps {
	if e.target != nil {
		if e.features.Has(workspace.FeatureFiles) {
			return guestFiles{s, e}
		}
		return nil
	}
	if files, ok := e.ws.(Filesystem); ok {
		return files
	}
	return nil
}

// withWorkspace attaches for the time of do. A workspace that turns out to be
// gone is forgotten: perhaps it is only this attachment that is.
func (s *server) withWorkspace(ctx context.Context, key *berthv1.WorkspaceKey, do func(*entry) error) error {
	e, err := s.cache.acquire(ctx, key)
	if err != nil {
		return err
	}
	defer s.cache.release(e)
	err = do(e)
	if errors.Is(err, workspace.ErrUnavailable) {
		s.cache.forget(e)
	}
	return err
}

// Stat follows links.
func (s *server) Stat(ctx context.Context, req *berthv1.StatRequest) (*berthv1.StatResponse, error) {
	answer := &berthv1.StatResponse{}
	return answer, s.withFile(ctx, opStat, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		info, err := c.files.Stat(ctx, c.abs)
		answer.Info = wire.FromFileInfo(info)
		return err
	})
}

// Lstat does not follow the last link.
func (s *server) Lstat(ctx context.Context, req *berthv1.LstatRequest) (*berthv1.LstatResponse, error) {
	answer := &berthv1.LstatResponse{}
	return answer, s.withFile(ctx, opLstat, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		info, err := c.files.Lstat(ctx, c.abs)
		answer.Info = wire.FromFileInfo(info)
		return err
	})
}

// MkdirAll makes a directory and its parents.
func (s *server) MkdirAll(ctx context.Context, req *berthv1.MkdirAllRequest) (*berthv1.MkdirAllResponse, error) {
	return &berthv1.MkdirAllResponse{}, s.withFile(ctx, opMkdir, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		return c.files.MkdirAll(ctx, c.abs)
	})
}

// Remove takes a file, a link itself, or a tree.
func (s *server) Remove(ctx context.Context, req *berthv1.RemoveRequest) (*berthv1.RemoveResponse, error) {
	return &berthv1.RemoveResponse{}, s.withFile(ctx, opRemove, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		if c.entry.target == nil { // a guest sees to it itself
			if err := c.entry.checkRemovable(ctx, c.files, c.abs); err != nil {
				return err
			}
		}
		return c.files.Remove(ctx, c.abs)
	})
}

// RealPath resolves as realpath -m does.
func (s *server) RealPath(ctx context.Context, req *berthv1.RealPathRequest) (*berthv1.RealPathResponse, error) {
	answer := &berthv1.RealPathResponse{}
	return answer, s.withFile(ctx, opRealPath, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		path, err := resolve(ctx, c.files, c.abs)
		answer.Path = []byte(path)
		return err
	})
}

// Readlink tells what a link holds.
func (s *server) Readlink(ctx context.Context, req *berthv1.ReadlinkRequest) (*berthv1.ReadlinkResponse, error) {
	answer := &berthv1.ReadlinkResponse{}
	return answer, s.withFile(ctx, opReadlink, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		linker, ok := c.files.(Linker)
		if !ok {
			return errors.ErrUnsupported
		}
		target, err := linker.Readlink(ctx, c.abs)
		answer.Target = []byte(target)
		return err
	})
}

// Chmod changes permissions.
func (s *server) Chmod(ctx context.Context, req *berthv1.ChmodRequest) (*berthv1.ChmodResponse, error) {
	return &berthv1.ChmodResponse{}, s.withFile(ctx, opChmod, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		chmoder, ok := c.files.(Chmoder)
		if !ok {
			return errors.ErrUnsupported
		}
		return chmoder.Chmod(ctx, c.abs, permissions(req.GetMode()))
	})
}

// Chtimes changes the modification time.
func (s *server) Chtimes(ctx context.Context, req *berthv1.ChtimesRequest) (*berthv1.ChtimesResponse, error) {
	return &berthv1.ChtimesResponse{}, s.withFile(ctx, opChtimes, req.GetWorkspace(), req.GetPath(), func(c fileCall) error {
		chtimer, ok := c.files.(Chtimer)
		if !ok {
			return errors.ErrUnsupported
		}
		return chtimer.Chtimes(ctx, c.abs, wire.ToTime(req.GetModTime()))
	})
}

// Rename renames, as os.Rename does.
func (s *server) Rename(ctx context.Context, req *berthv1.RenameRequest) (*berthv1.RenameResponse, error) {
	from, to := string(req.GetFrom()), string(req.GetTo())
	for _, path := range []string{from, to} {
		if err := workspace.ValidatePath(opRename, path); err != nil {
			return nil, err
		}
	}
	return &berthv1.RenameResponse{}, s.withWorkspace(ctx, req.GetWorkspace(), func(e *entry) error {
		renamer, ok := s.files(e).(Renamer)
		if !ok {
			return linkError(opRename, from, to, errors.ErrUnsupported)
		}
		return linkError(opRename, from, to, renamer.Rename(ctx, e.path(from), e.path(to)))
	})
}

// Symlink makes path a link that holds target, which is any bytes but NUL.
func (s *server) Symlink(ctx context.Context, req *berthv1.SymlinkRequest) (*berthv1.SymlinkResponse, error) {
	target, path := string(req.GetTarget()), string(req.GetPath())
	if err := workspace.ValidatePath(opSymlink, path); err != nil {
		return nil, err
	}
	if strings.IndexByte(target, 0) >= 0 {
		return nil, workspace.ValidatePath(opSymlink, target)
	}
	return &berthv1.SymlinkResponse{}, s.withWorkspace(ctx, req.GetWorkspace(), func(e *entry) error {
		linker, ok := s.files(e).(Linker)
		if !ok {
			return linkError(opSymlink, target, path, errors.ErrUnsupported)
		}
		return linkError(opSymlink, target, path, linker.Symlink(ctx, target, e.path(path)))
	})
}

// permissions are those bits of a wire mode that can be set.
func permissions(mode uint32) fs.FileMode {
	return wire.ToFileMode(mode) & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}
