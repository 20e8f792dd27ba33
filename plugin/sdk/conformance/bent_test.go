package conformance

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"iter"
	"sync"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// bentHost is a good host but for what is overridden.
type bentHost struct {
	workspace.Host
	open    func(provider string, opts []workspace.Option) (workspace.Workspace, error)
	attach  func(ref workspace.Ref) (workspace.Workspace, error)
	destroy func(ctx context.Context, ref workspace.Ref) error
	close   func() error
	// bend changes every handle.
	bend func(workspace.Workspace) workspace.Workspace
}

func (h *bentHost) Workspace(provider string, opts ...workspace.Option) (workspace.Workspace, error) {
	if h.open != nil {
		return h.open(provider, opts)
	}
	return h.bent(h.Host.Workspace(provider, opts...))
}

func (h *bentHost) Attach(ref workspace.Ref, opts ...workspace.Option) (workspace.Workspace, error) {
	if h.attach != nil {
		return h.attach(ref)
	}
	return h.bent(h.Host.Attach(ref, opts...))
}

func (h *bentHost) bent(ws workspace.Workspace, err error) (workspace.Workspace, error) {
	if err != nil || h.bend == nil {
		return ws, err
	}
	return h.bend(ws), nil
}

func (h *bentHost) Destroy(ctx context.Context, ref workspace.Ref) error {
	if h.destroy != nil {
		return h.destroy(ctx, ref)
	}
	return h.Host.Destroy(ctx, ref)
}

func (h *bentHost) List(ctx context.Context, provider string, opts workspace.ListOptions) iter.Seq2[workspace.Info, error] {
	return h.Host.List(ctx, provider, opts)
}

func (h *bentHost) Close() error {
	if h.close != nil {
		return h.close()
	}
	return h.Host.(io.Closer).Close()
}

// bent is a good workspace but for what is overridden.
type bent struct {
	workspace.Workspace
	run        func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error)
	start      func(ctx context.Context, cmd workspace.Command) (workspace.Process, error)
	ref        func() (workspace.Ref, bool)
	workingDir func(ctx context.Context) (string, error)
	stat       func(ctx context.Context, path string) (workspace.FileInfo, error)
	lstat      func(ctx context.Context, path string) (workspace.FileInfo, error)
	readDir    func(ctx context.Context, path string) ([]workspace.FileInfo, error)
	open       func(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error)
	create     func(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error)
	readFile   func(ctx context.Context, path string) ([]byte, error)
	writeFile  func(ctx context.Context, path string, data []byte) error
	mkdirAll   func(ctx context.Context, path string) error
	remove     func(ctx context.Context, path string) error
	removeAll  func(ctx context.Context, path string) error
	realPath   func(ctx context.Context, path string) (string, error)
	rename     func(ctx context.Context, from, to string) error
	symlink    func(ctx context.Context, target, path string) error
	chmod      func(ctx context.Context, path string, mode fs.FileMode) error
	fs         func(ctx context.Context) fs.FS
	listRuns   func(ctx context.Context) iter.Seq2[workspace.RunInfo, error]
	attachRun  func(ctx context.Context, id string, opts workspace.AttachOptions) (workspace.Process, error)
	stopRun    func(ctx context.Context, id string) error
}

func (b *bent) Run(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
	if b.run != nil {
		return b.run(ctx, cmd)
	}
	return b.Workspace.Run(ctx, cmd)
}

func (b *bent) Start(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
	if b.start != nil {
		return b.start(ctx, cmd)
	}
	return b.Workspace.Start(ctx, cmd)
}

func (b *bent) Ref() (workspace.Ref, bool) {
	if b.ref != nil {
		return b.ref()
	}
	return b.Workspace.Ref()
}

func (b *bent) WorkingDir(ctx context.Context) (string, error) {
	if b.workingDir != nil {
		return b.workingDir(ctx)
	}
	return b.Workspace.WorkingDir(ctx)
}

func (b *bent) Stat(ctx context.Context, path string) (workspace.FileInfo, error) {
	if b.stat != nil {
		return b.stat(ctx, path)
	}
	return b.Workspace.Stat(ctx, path)
}

func (b *bent) Lstat(ctx context.Context, path string) (workspace.FileInfo, error) {
	if b.lstat != nil {
		return b.lstat(ctx, path)
	}
	return b.Workspace.Lstat(ctx, path)
}

func (b *bent) ReadDir(ctx context.Context, path string) ([]workspace.FileInfo, error) {
	if b.readDir != nil {
		return b.readDir(ctx, path)
	}
	return b.Workspace.ReadDir(ctx, path)
}

func (b *bent) Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	if b.open != nil {
		return b.open(ctx, path, opts)
	}
	return b.Workspace.Open(ctx, path, opts)
}

func (b *bent) Create(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	if b.create != nil {
		return b.create(ctx, path, opts)
	}
	return b.Workspace.Create(ctx, path, opts)
}

func (b *bent) ReadFile(ctx context.Context, path string) ([]byte, error) {
	if b.readFile != nil {
		return b.readFile(ctx, path)
	}
	return b.Workspace.ReadFile(ctx, path)
}

func (b *bent) WriteFile(ctx context.Context, path string, data []byte) error {
	if b.writeFile != nil {
		return b.writeFile(ctx, path, data)
	}
	return b.Workspace.WriteFile(ctx, path, data)
}

func (b *bent) MkdirAll(ctx context.Context, path string) error {
	if b.mkdirAll != nil {
		return b.mkdirAll(ctx, path)
	}
	return b.Workspace.MkdirAll(ctx, path)
}

func (b *bent) Remove(ctx context.Context, path string) error {
	if b.remove != nil {
		return b.remove(ctx, path)
	}
	return b.Workspace.Remove(ctx, path)
}

func (b *bent) RemoveAll(ctx context.Context, path string) error {
	if b.removeAll != nil {
		return b.removeAll(ctx, path)
	}
	return b.Workspace.RemoveAll(ctx, path)
}

func (b *bent) RealPath(ctx context.Context, path string) (string, error) {
	if b.realPath != nil {
		return b.realPath(ctx, path)
	}
	return b.Workspace.RealPath(ctx, path)
}

func (b *bent) Rename(ctx context.Context, from, to string) error {
	if b.rename != nil {
		return b.rename(ctx, from, to)
	}
	return b.Workspace.Rename(ctx, from, to)
}

func (b *bent) Symlink(ctx context.Context, target, path string) error {
	if b.symlink != nil {
		return b.symlink(ctx, target, path)
	}
	return b.Workspace.Symlink(ctx, target, path)
}

func (b *bent) Chmod(ctx context.Context, path string, mode fs.FileMode) error {
	if b.chmod != nil {
		return b.chmod(ctx, path, mode)
	}
	return b.Workspace.Chmod(ctx, path, mode)
}

func (b *bent) FS(ctx context.Context) fs.FS {
	if b.fs != nil {
		return b.fs(ctx)
	}
	return b.Workspace.FS(ctx)
}

func (b *bent) ListRuns(ctx context.Context) iter.Seq2[workspace.RunInfo, error] {
	if b.listRuns != nil {
		return b.listRuns(ctx)
	}
	return b.Workspace.ListRuns(ctx)
}

func (b *bent) AttachRun(ctx context.Context, id string, opts workspace.AttachOptions) (workspace.Process, error) {
	if b.attachRun != nil {
		return b.attachRun(ctx, id, opts)
	}
	return b.Workspace.AttachRun(ctx, id, opts)
}

func (b *bent) StopRun(ctx context.Context, id string) error {
	if b.stopRun != nil {
		return b.stopRun(ctx, id)
	}
	return b.Workspace.StopRun(ctx, id)
}

// bentProcess answers Wait in another way.
type bentProcess struct {
	workspace.Process
	wait func() (*workspace.Result, error)
}

func (p *bentProcess) Wait() (*workspace.Result, error) { return p.wait() }

// bentWriter is a FileWriter that is overridden.
type bentWriter struct {
	workspace.FileWriter
	write func([]byte) (int, error)
	close func() error
	abort func() error
}

func (w *bentWriter) Write(b []byte) (int, error) {
	if w.write != nil {
		return w.write(b)
	}
	return w.FileWriter.Write(b)
}

func (w *bentWriter) Close() error {
	if w.close != nil {
		return w.close()
	}
	return w.FileWriter.Close()
}

func (w *bentWriter) Abort() error {
	if w.abort != nil {
		return w.abort()
	}
	return w.FileWriter.Abort()
}

// bentReader reads what it is given.
type bentReader struct {
	workspace.FileReader
	from io.Reader
}

func (r *bentReader) Read(b []byte) (int, error) { return r.from.Read(b) }

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Makers of bends, which most mutants use.

// everyHandle bends all handles of all hosts.
func everyHandle(bend func(workspace.Workspace) workspace.Workspace) func(*Options) {
	return func(o *Options) {
		everyHost(o, func(h workspace.Host) workspace.Host { return &bentHost{Host: h, bend: bend} })
	}
}

// everyHost wraps all hosts.
func everyHost(o *Options, wrap func(workspace.Host) workspace.Host) {
	o.Host = wrap(o.Host)
	otherHosts(o, wrap)
}

// bendCommand changes what is run.
func bendCommand(change func(*workspace.Command)) func(*Options) {
	return everyHandle(func(ws workspace.Workspace) workspace.Workspace {
		return &bent{Workspace: ws,
			run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				change(&cmd)
				return ws.Run(ctx, cmd)
			},
			start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				change(&cmd)
				return ws.Start(ctx, cmd)
			},
		}
	})
}

// bendResult changes what comes back.
func bendResult(change func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error)) func(*Options) {
	return everyHandle(func(ws workspace.Workspace) workspace.Workspace {
		return &bent{Workspace: ws,
			run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				res, err := ws.Run(ctx, cmd)
				return change(cmd, res, err)
			},
			start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				p, err := ws.Start(ctx, cmd)
				if err != nil {
					return p, err
				}
				return &bentProcess{p, func() (*workspace.Result, error) {
					res, err := p.Wait()
					return change(cmd, res, err)
				}}, nil
			},
		}
	})
}

// bendOutput changes what a good command wrote.
func bendOutput(change func(*workspace.Result)) func(*Options) {
	return bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
		if err == nil {
			change(res)
		}
		return res, err
	})
}

// bendError changes every error of the calls that only take a path.
func bendError(change func(path string, err error) error) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{
			stat: func(ctx context.Context, path string) (workspace.FileInfo, error) {
				i, err := ws.Stat(ctx, path)
				return i, change(path, err)
			},
			readFile: func(ctx context.Context, path string) ([]byte, error) {
				b, err := ws.ReadFile(ctx, path)
				return b, change(path, err)
			},
			writeFile: func(ctx context.Context, path string, data []byte) error {
				return change(path, ws.WriteFile(ctx, path, data))
			},
			mkdirAll: func(ctx context.Context, path string) error { return change(path, ws.MkdirAll(ctx, path)) },
			remove:   func(ctx context.Context, path string) error { return change(path, ws.Remove(ctx, path)) },
			removeAll: func(ctx context.Context, path string) error {
				return change(path, ws.RemoveAll(ctx, path))
			},
			realPath: func(ctx context.Context, path string) (string, error) {
				real, err := ws.RealPath(ctx, path)
				return real, change(path, err)
			},
		}
	})
}

// bendFiles overrides some file calls.
func bendFiles(of func(ws workspace.Workspace) *bent) func(*Options) {
	return everyHandle(func(ws workspace.Workspace) workspace.Workspace {
		b := of(ws)
		b.Workspace = ws
		return b
	})
}

// bendContent changes what is written, however it comes.
func bendContent(change func([]byte) []byte) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{
			writeFile: func(ctx context.Context, path string, data []byte) error {
				return ws.WriteFile(ctx, path, change(bytes.Clone(data)))
			},
			create: func(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
				w, err := ws.Create(ctx, path, opts)
				if err != nil {
					return nil, err
				}
				var all []byte
				return &bentWriter{FileWriter: w,
					write: func(b []byte) (int, error) { all = append(all, b...); return len(b), nil },
					close: func() error {
						if _, err := w.Write(change(all)); err != nil {
							return err
						}
						return w.Close()
					},
				}, nil
			},
		}
	})
}

// bendEntries changes listings.
func bendEntries(change func([]workspace.FileInfo) []workspace.FileInfo) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{readDir: func(ctx context.Context, path string) ([]workspace.FileInfo, error) {
			entries, err := ws.ReadDir(ctx, path)
			return change(entries), err
		}}
	})
}

// bendOpen changes how handles are made.
func bendOpen(change func(*workspace.OpenOptions)) func(workspace.Host) workspace.Host {
	return func(h workspace.Host) workspace.Host {
		return &bentHost{Host: h, open: func(provider string, opts []workspace.Option) (workspace.Workspace, error) {
			var o workspace.OpenOptions
			for _, opt := range opts {
				opt(&o)
			}
			change(&o)
			return h.Workspace(provider, func(to *workspace.OpenOptions) { *to = o })
		}}
	}
}

// otherHosts wraps the hosts of OtherHost alone.
func otherHosts(o *Options, wrap func(workspace.Host) workspace.Host) {
	if other := o.OtherHost; other != nil {
		o.OtherHost = func(t testing.TB) workspace.Host { return wrap(other(t)) }
	}
}

// memory is what a mutant remembers over calls.
type memory[V any] struct {
	mu sync.Mutex
	m  map[string]V
}

func (m *memory[V]) get(key string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.m[key]
	return v, ok
}

func (m *memory[V]) put(key string, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil {
		m.m = map[string]V{}
	}
	m.m[key] = v
}
