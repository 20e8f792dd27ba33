package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// maxListing is how many entries of one directory are believed: some hundred
// times more than a file system still lists with pleasure.
const maxListing = 10_000_000

// fileCall is a unary call about one path: the path is checked before anything
// starts, and errors carry it as the caller gave it.
func fileCall[Resp any](ctx context.Context, h *handle, name, file string, changes bool, do func(context.Context, berthv1.ProviderClient, *berthv1.WorkspaceKey) (Resp, error)) (Resp, error) {
	var none Resp
	if err := workspace.ValidatePath(name, file); err != nil {
		return none, err
	}
	s, err := h.open(ctx)
	if err != nil {
		return none, err
	}
	resp, err := unary(ctx, h.p, h.op(name, changes), func(ctx context.Context, c berthv1.ProviderClient) (Resp, error) {
		return do(ctx, c, s.key)
	})
	return resp, pathError(name, file, err)
}

// Stat follows links.
func (h *handle) Stat(ctx context.Context, file string) (workspace.FileInfo, error) {
	resp, err := fileCall(ctx, h, "stat", file, false, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.StatResponse, error) {
		return c.Stat(ctx, &berthv1.StatRequest{Workspace: key, Path: []byte(file)})
	})
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return h.info("stat", resp.GetInfo())
}

// Lstat does not follow the last element.
func (h *handle) Lstat(ctx context.Context, file string) (workspace.FileInfo, error) {
	resp, err := fileCall(ctx, h, "lstat", file, false, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.LstatResponse, error) {
		return c.Lstat(ctx, &berthv1.LstatRequest{Workspace: key, Path: []byte(file)})
	})
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return h.info("lstat", resp.GetInfo())
}

// info reads what a plugin tells of one file.
func (h *handle) info(op string, info *berthv1.FileInfo) (workspace.FileInfo, error) {
	if info == nil {
		return workspace.FileInfo{}, &workspace.PluginError{Provider: h.p.name, Op: op, Workspace: h.on(), Reason: "the plugin answered without saying anything of the file"}
	}
	return wire.ToFileInfo(info), nil
}

// ReadDir is complete and sorted by name.
func (h *handle) ReadDir(ctx context.Context, dir string) ([]workspace.FileInfo, error) {
	const name = "readdir"
	if err := workspace.ValidatePath(name, dir); err != nil {
		return nil, err
	}
	s, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	op := h.op(name, false)
	for retried := false; ; retried = true {
		entries, died, err := h.readDir(ctx, s, op, dir)
		if !died || retried {
			return entries, pathError(name, dir, err)
		}
	}
}

func (h *handle) readDir(ctx context.Context, s *session, op operation, dir string) (_ []workspace.FileInfo, died bool, _ error) {
	inst, err := h.p.acquire(ctx)
	if err != nil {
		return nil, false, op.wrap(err)
	}
	defer inst.Release()
	callCtx, watch := watched(ctx, h.p.host.deadlines.Idle)
	defer watch.end()
	watch.begin()
	stream, err := inst.Client().ReadDir(callCtx, &berthv1.ReadDirRequest{Workspace: s.key, Path: []byte(dir)})
	var entries []workspace.FileInfo
	for err == nil {
		var msg *berthv1.ReadDirResponse
		watch.begin()
		if msg, err = stream.Recv(); err != nil {
			break
		}
		for _, entry := range msg.GetEntries() {
			info := wire.ToFileInfo(entry)
			if reason := badEntry(entries, info); reason != "" {
				return nil, false, h.p.fault(inst, op, reason)
			}
			entries = append(entries, info)
		}
		if msg.GetEnd() {
			return entries, false, nil
		}
	}
	if errors.Is(err, io.EOF) {
		return nil, false, h.p.fault(inst, op, "the plugin ended the listing before its end")
	}
	died, err = h.p.failure(ctx, callCtx, inst, op, err)
	return nil, died, err
}

// badEntry says what is wrong with an entry after those before it. A name with
// a slash would take whoever copies a tree out of it.
func badEntry(before []workspace.FileInfo, info workspace.FileInfo) string {
	switch name := info.Name; {
	case name == "", name == ".", name == "..", strings.ContainsAny(name, "/\x00"):
		return fmt.Sprintf("the plugin listed %q, which is no file name", shorten(name))
	case len(before) > 0 && before[len(before)-1].Name >= name:
		return fmt.Sprintf("the plugin's listing is not sorted: %q after %q", shorten(name), shorten(before[len(before)-1].Name))
	case len(before) >= maxListing:
		return fmt.Sprintf("the plugin lists more than %d entries", maxListing)
	}
	return ""
}

// MkdirAll makes parents and is idempotent (contract F5).
func (h *handle) MkdirAll(ctx context.Context, dir string) error {
	_, err := fileCall(ctx, h, "mkdir", dir, true, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.MkdirAllResponse, error) {
		return c.MkdirAll(ctx, &berthv1.MkdirAllRequest{Workspace: key, Path: []byte(dir)})
	})
	return err
}

// Remove takes a file, a link itself, or a tree (contract F6).
func (h *handle) Remove(ctx context.Context, file string) error {
	_, err := fileCall(ctx, h, "remove", file, true, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.RemoveResponse, error) {
		return c.Remove(ctx, &berthv1.RemoveRequest{Workspace: key, Path: []byte(file)})
	})
	return err
}

// RemoveAll is Remove, but nil where nothing is (contract F6).
func (h *handle) RemoveAll(ctx context.Context, file string) error {
	if err := h.Remove(ctx, file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Rename renames as os.Rename does (contract F10).
func (h *handle) Rename(ctx context.Context, from, to string) error {
	const name = "rename"
	if err := workspace.ValidatePath(name, to); err != nil {
		return err
	}
	_, err := fileCall(ctx, h, name, from, true, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.RenameResponse, error) {
		return c.Rename(ctx, &berthv1.RenameRequest{Workspace: key, From: []byte(from), To: []byte(to)})
	})
	return linkError(name, from, to, err)
}

// Symlink makes file a link that holds target (contract F10).
func (h *handle) Symlink(ctx context.Context, target, file string) error {
	const name = "symlink"
	if err := workspace.ValidatePath(name, target); err != nil {
		return err
	}
	_, err := fileCall(ctx, h, name, file, true, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.SymlinkResponse, error) {
		return c.Symlink(ctx, &berthv1.SymlinkRequest{Workspace: key, Target: []byte(target), Path: []byte(file)})
	})
	return linkError(name, target, file, err)
}

// Readlink returns what a link holds (contract F10).
func (h *handle) Readlink(ctx context.Context, file string) (string, error) {
	resp, err := fileCall(ctx, h, "readlink", file, false, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.ReadlinkResponse, error) {
		return c.Readlink(ctx, &berthv1.ReadlinkRequest{Workspace: key, Path: []byte(file)})
	})
	return string(resp.GetTarget()), err
}

// Chmod changes permissions as os.Chmod does (contract F10).
func (h *handle) Chmod(ctx context.Context, file string, mode fs.FileMode) error {
	_, err := fileCall(ctx, h, "chmod", file, true, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.ChmodResponse, error) {
		return c.Chmod(ctx, &berthv1.ChmodRequest{Workspace: key, Path: []byte(file), Mode: permissions(mode)})
	})
	return err
}

// permissions are the permission, set-id and sticky bits, without a type.
func permissions(mode fs.FileMode) uint32 {
	const posix = 0o7777
	return wire.FromFileMode(mode&^fs.ModeType) & posix
}

// Chtimes changes the modification time, links followed (contract F10).
func (h *handle) Chtimes(ctx context.Context, file string, modTime time.Time) error {
	_, err := fileCall(ctx, h, "chtimes", file, true, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.ChtimesResponse, error) {
		return c.Chtimes(ctx, &berthv1.ChtimesRequest{Workspace: key, Path: []byte(file), ModTime: wire.FromTime(modTime)})
	})
	return err
}

// RealPath resolves like realpath -m (contract F7).
func (h *handle) RealPath(ctx context.Context, file string) (string, error) {
	const name = "realpath"
	resp, err := fileCall(ctx, h, name, file, false, func(ctx context.Context, c berthv1.ProviderClient, key *berthv1.WorkspaceKey) (*berthv1.RealPathResponse, error) {
		return c.RealPath(ctx, &berthv1.RealPathRequest{Workspace: key, Path: []byte(file)})
	})
	if err != nil {
		return "", err
	}
	resolved := string(resp.GetPath())
	if !path.IsAbs(resolved) || strings.IndexByte(resolved, 0) >= 0 {
		return "", &workspace.PluginError{Provider: h.p.name, Op: name, Workspace: h.on(), Reason: fmt.Sprintf("the plugin answered %q, which is no absolute path", shorten(resolved))}
	}
	return resolved, nil
}

// ReadFile reads a whole file.
func (h *handle) ReadFile(ctx context.Context, file string) ([]byte, error) {
	r, err := h.Open(ctx, file, workspace.ReadOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// The size is a hint, and the plugin's word: what arrives is what counts.
	const believed = 16 << 20
	data := make([]byte, 0, min(max(r.Info().Size, 0), believed)+1)
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

// WriteFile creates or replaces a whole file (contract F2).
func (h *handle) WriteFile(ctx context.Context, file string, data []byte) error {
	w, err := h.Create(ctx, file, workspace.WriteOptions{})
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		_ = w.Abort()
		return err
	}
	return w.Close()
}

// releaser is what an open stream holds of its plugin.
type releaser struct{ inst *supervisor.Instance }

func (r *releaser) release() {
	if r.inst != nil {
		r.inst.Release()
		r.inst = nil
	}
}
