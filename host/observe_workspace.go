package host

import (
	"context"
	"io/fs"
	"iter"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/berth-dev/berth/shared/workspace"
)

// Operations, as spans and figures name them.
const (
	opCreate   = "create"
	opAttach   = "attach"
	opRun      = "run"
	opStart    = "start"
	opAttachRn = "attach_run"
	opListRuns = "list_runs"
	opStopRun  = "stop_run"
	opRead     = "read"
	opWrite    = "write"
	opStat     = "stat"
	opLstat    = "lstat"
	opReadDir  = "readdir"
	opMkdir    = "mkdir"
	opRemove   = "remove"
	opRename   = "rename"
	opSymlink  = "symlink"
	opReadlink = "readlink"
	opChmod    = "chmod"
	opChtimes  = "chtimes"
	opRealPath = "realpath"
	opDestroy  = "destroy"
	opList     = "list"
	opStop     = "stop"
	opSweep    = "sweep"
	opPlugin   = "start_plugin"
)

// observed is a handle of which each operation makes a span and figures. One that
// nobody observes is the handle itself.
type observed struct{ *handle }

var _ workspace.Workspace = observed{}

// observed returns what embedders get of a handle.
func (h *handle) observed() workspace.Workspace {
	if h.p.host.observer == nil {
		return h
	}
	return observed{h}
}

// observe returns what embedders get of a handle that was made, or not.
func observe(h *handle, err error) (workspace.Workspace, error) {
	if err != nil {
		return nil, err
	}
	return h.observed(), nil
}

func (o observed) begin(ctx context.Context, op string, attrs ...attribute.KeyValue) (context.Context, *observation) {
	return o.p.observe(ctx, op, attrs...)
}

// end tells too what workspace it was.
func (o observed) end(ob *observation, err error) {
	if ref, ok := o.Ref(); ok {
		ob.set(attrWorkspace.String(ref.String()))
	}
	ob.end(err)
}

// do observes an operation on one path.
func (o observed) do(ctx context.Context, op, path string, fn func(context.Context) error) error {
	ctx, ob := o.begin(ctx, op, pathAttr(path))
	err := fn(ctx)
	o.end(ob, err)
	return err
}

// get is do for one that returns something.
func get[T any](ctx context.Context, o observed, op, path string, fn func(context.Context) (T, error)) (T, error) {
	ctx, ob := o.begin(ctx, op, pathAttr(path))
	v, err := fn(ctx)
	o.end(ob, err)
	return v, err
}

// Run starts a command and waits for it.
func (o observed) Run(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
	p, err := o.start(ctx, opRun, cmd)
	if err != nil {
		return nil, err
	}
	return p.Wait()
}

// Start starts a command.
func (o observed) Start(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
	return o.start(ctx, opStart, cmd)
}

func (o observed) start(ctx context.Context, op string, cmd workspace.Command) (workspace.Process, error) {
	ctx, ob := o.begin(ctx, op)
	p, err := o.handle.Start(ctx, cmd)
	return o.follow(ob, p, err)
}

// AttachRun follows a run.
func (o observed) AttachRun(ctx context.Context, id string, opts workspace.AttachOptions) (workspace.Process, error) {
	ctx, ob := o.begin(ctx, opAttachRn)
	p, err := o.handle.AttachRun(ctx, id, opts)
	return o.follow(ob, p, err)
}

// follow ends the observation when the run does.
func (o observed) follow(ob *observation, p workspace.Process, err error) (workspace.Process, error) {
	if err != nil {
		o.end(ob, err)
		return nil, err
	}
	ob.set(attrRun.String(p.ID()))
	if ref, ok := o.Ref(); ok {
		ob.set(attrWorkspace.String(ref.String()))
	}
	p.(*run).observe(ob)
	return p, nil
}

// StopRun stops a run's whole process tree.
func (o observed) StopRun(ctx context.Context, id string) error {
	ctx, ob := o.begin(ctx, opStopRun, attrRun.String(id))
	err := o.handle.StopRun(ctx, id)
	o.end(ob, err)
	return err
}

// ListRuns tells the runs whose outcome was not taken.
func (o observed) ListRuns(ctx context.Context) iter.Seq2[workspace.RunInfo, error] {
	return func(yield func(workspace.RunInfo, error) bool) {
		ctx, ob := o.begin(ctx, opListRuns)
		o.end(ob, each(o.handle.ListRuns(ctx), yield))
	}
}

// each passes a listing on, and returns the error that it ended with.
func each[T any](seq iter.Seq2[T, error], yield func(T, error) bool) (last error) {
	for v, err := range seq {
		last = err
		if !yield(v, err) {
			break
		}
	}
	return last
}

// Open reads a regular file.
func (o observed) Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	ctx, ob := o.begin(ctx, opRead, pathAttr(path))
	r, err := o.handle.Open(ctx, path, opts)
	if err != nil {
		o.end(ob, err)
		return nil, err
	}
	r.(*reader).observe(ob)
	return r, nil
}

// Create writes a file.
func (o observed) Create(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	ctx, ob := o.begin(ctx, opWrite, pathAttr(path))
	w, err := o.handle.Create(ctx, path, opts)
	if err != nil {
		o.end(ob, err)
		return nil, err
	}
	w.(*writer).observe(ob)
	return w, nil
}

// ReadFile reads a whole file.
func (o observed) ReadFile(ctx context.Context, path string) ([]byte, error) {
	ctx, ob := o.begin(ctx, opRead, pathAttr(path))
	data, err := o.handle.ReadFile(ctx, path)
	ob.moved(0, int64(len(data)))
	o.end(ob, err)
	return data, err
}

// WriteFile creates or replaces a whole file.
func (o observed) WriteFile(ctx context.Context, path string, data []byte) error {
	ctx, ob := o.begin(ctx, opWrite, pathAttr(path))
	err := o.handle.WriteFile(ctx, path, data)
	if err == nil {
		ob.moved(int64(len(data)), 0)
	}
	o.end(ob, err)
	return err
}

// Stat follows links.
func (o observed) Stat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return get(ctx, o, opStat, path, func(ctx context.Context) (workspace.FileInfo, error) { return o.handle.Stat(ctx, path) })
}

// Lstat does not follow the last element.
func (o observed) Lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	return get(ctx, o, opLstat, path, func(ctx context.Context) (workspace.FileInfo, error) { return o.handle.Lstat(ctx, path) })
}

// ReadDir is complete and sorted by name.
func (o observed) ReadDir(ctx context.Context, path string) ([]workspace.FileInfo, error) {
	return get(ctx, o, opReadDir, path, func(ctx context.Context) ([]workspace.FileInfo, error) { return o.handle.ReadDir(ctx, path) })
}

// MkdirAll makes parents.
func (o observed) MkdirAll(ctx context.Context, path string) error {
	return o.do(ctx, opMkdir, path, func(ctx context.Context) error { return o.handle.MkdirAll(ctx, path) })
}

// Remove takes a file or a tree.
func (o observed) Remove(ctx context.Context, path string) error {
	return o.do(ctx, opRemove, path, func(ctx context.Context) error { return o.handle.Remove(ctx, path) })
}

// RemoveAll is Remove, but nil where nothing is.
func (o observed) RemoveAll(ctx context.Context, path string) error {
	return o.do(ctx, opRemove, path, func(ctx context.Context) error { return o.handle.RemoveAll(ctx, path) })
}

// Rename renames as os.Rename does.
func (o observed) Rename(ctx context.Context, from, to string) error {
	return o.do(ctx, opRename, from, func(ctx context.Context) error { return o.handle.Rename(ctx, from, to) })
}

// Symlink makes a link.
func (o observed) Symlink(ctx context.Context, target, path string) error {
	return o.do(ctx, opSymlink, path, func(ctx context.Context) error { return o.handle.Symlink(ctx, target, path) })
}

// Readlink returns what a link holds.
func (o observed) Readlink(ctx context.Context, path string) (string, error) {
	return get(ctx, o, opReadlink, path, func(ctx context.Context) (string, error) { return o.handle.Readlink(ctx, path) })
}

// Chmod changes permissions.
func (o observed) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	return o.do(ctx, opChmod, path, func(ctx context.Context) error { return o.handle.Chmod(ctx, path, mode) })
}

// Chtimes changes the modification time.
func (o observed) Chtimes(ctx context.Context, path string, modTime time.Time) error {
	return o.do(ctx, opChtimes, path, func(ctx context.Context) error { return o.handle.Chtimes(ctx, path, modTime) })
}

// RealPath resolves links.
func (o observed) RealPath(ctx context.Context, path string) (string, error) {
	return get(ctx, o, opRealPath, path, func(ctx context.Context) (string, error) { return o.handle.RealPath(ctx, path) })
}

// FS is the workspace's files as io/fs.
func (o observed) FS(ctx context.Context) fs.FS { return workspace.NewFS(ctx, o) }
