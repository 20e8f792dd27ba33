package sdk

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

const testTimeout = 30 * time.Second // far beyond what any call here takes

type testConfig struct {
	Image  string            `json:"image" jsonschema:"description=What to run" berth:"per_workspace"`
	Root   string            `json:"root" berth:"path"`
	Token  string            `json:"token" berth:"secret"`
	Memory int64             `json:"memory" berth:"per_workspace"`
	Tags   []string          `json:"tags" berth:"per_workspace"`
	Nested nestedConfig      `json:"nested"`
	Env    map[string]string `json:"env" berth:"per_workspace"`
}

type nestedConfig struct {
	Password string `json:"password" berth:"secret"`
	Level    int    `json:"level"`
}

// fakeProvider is a provider whose every call can be replaced.
type fakeProvider struct {
	create  func(ctx context.Context, req CreateRequest) (Workspace, error)
	attach  func(ctx context.Context, id string) (Workspace, error)
	destroy func(ctx context.Context, id string) error
	list    func(ctx context.Context, opts workspace.ListOptions) iter.Seq2[Info, error]
	closed  func() error
	labels  bool
}

func (p *fakeProvider) Create(ctx context.Context, req CreateRequest) (Workspace, error) {
	return p.create(ctx, req)
}

func (p *fakeProvider) Attach(ctx context.Context, id string) (Workspace, error) {
	return p.attach(ctx, id)
}
func (p *fakeProvider) Destroy(ctx context.Context, id string) error { return p.destroy(ctx, id) }
func (p *fakeProvider) List(ctx context.Context, opts workspace.ListOptions) iter.Seq2[Info, error] {
	return p.list(ctx, opts)
}

func (p *fakeProvider) Close() error {
	if p.closed != nil {
		return p.closed()
	}
	return nil
}

func (p *fakeProvider) Announce() []workspace.Feature {
	if p.labels {
		return []workspace.Feature{workspace.FeatureLabels}
	}
	return nil
}

// providing always gives ws.
func providing(ws Workspace) *fakeProvider {
	return &fakeProvider{
		create:  func(context.Context, CreateRequest) (Workspace, error) { return ws, nil },
		attach:  func(context.Context, string) (Workspace, error) { return ws, nil },
		destroy: func(context.Context, string) error { return nil },
		list: func(context.Context, workspace.ListOptions) iter.Seq2[Info, error] {
			return func(func(Info, error) bool) {}
		},
	}
}

// bare is a workspace that can do nothing.
type bare struct {
	id, incarnation, dir string
}

func (w *bare) ID() string          { return w.id }
func (w *bare) Incarnation() string { return w.incarnation }
func (w *bare) WorkingDir() string  { return w.dir }

func newBare() *bare { return &bare{id: "ws", incarnation: "one", dir: "/work"} }

// memory is a workspace with files in a map: paths are keys as they arrive, but
// for links, which Stat and Open follow once.
type memory struct {
	*bare
	mu    sync.Mutex
	files map[string]*memoryFile
	calls []string
	// fail, if set, is asked before each call.
	fail func(op, path string) error
}

type memoryFile struct {
	data   []byte
	mode   fs.FileMode
	target string
}

func newMemory() *memory { return &memory{bare: newBare(), files: map[string]*memoryFile{}} }

func (m *memory) get(op, path string) (*memoryFile, error) {
	m.calls = append(m.calls, op+" "+path)
	if m.fail != nil {
		if err := m.fail(op, path); err != nil {
			return nil, err
		}
	}
	if f := m.files[path]; f != nil {
		return f, nil
	}
	return nil, &fs.PathError{Op: "internal-" + op, Path: "/somewhere/else" + path, Err: syscall.ENOENT}
}

func (f *memoryFile) info(path string) workspace.FileInfo {
	return workspace.FileInfo{Name: path[strings.LastIndexByte(path, '/')+1:], Size: int64(len(f.data)), Mode: f.mode, Link: f.target != "", Target: f.target}
}

func (m *memory) Stat(_ context.Context, path string) (workspace.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.get("stat", path)
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return f.info(path), nil
}

func (m *memory) Lstat(_ context.Context, path string) (workspace.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.get("lstat", path)
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return f.info(path), nil
}

func (m *memory) ReadDir(_ context.Context, path string) ([]workspace.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		if err := m.fail("readdir", path); err != nil {
			return nil, err
		}
	}
	var infos []workspace.FileInfo
	for name, f := range m.files { // in no order: sorting is the SDK's
		if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(path, "/")+"/"); ok && !strings.Contains(rest, "/") {
			infos = append(infos, f.info(name))
		}
	}
	return infos, nil
}

type memoryReader struct {
	io.Reader
	info   workspace.FileInfo
	closed *bool
}

func (r *memoryReader) Info() workspace.FileInfo { return r.info }
func (r *memoryReader) Close() error {
	if r.closed != nil {
		*r.closed = true
	}
	return nil
}

func (m *memory) Open(_ context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := m.get("open", path)
	if err != nil {
		return nil, err
	}
	data := f.data[min(opts.Offset, int64(len(f.data))):]
	if opts.Length > 0 {
		data = data[:min(opts.Length, int64(len(data)))]
	}
	return &memoryReader{Reader: strings.NewReader(string(data)), info: f.info(path)}, nil
}

type memoryWriter struct {
	m    *memory
	path string
	mode fs.FileMode
	data []byte
}

func (w *memoryWriter) Write(p []byte) (int, error) {
	w.data = append(w.data, p...)
	return len(p), nil
}
func (w *memoryWriter) Close() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.files[w.path] = &memoryFile{data: w.data, mode: w.mode}
	return nil
}

func (w *memoryWriter) Abort() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.calls = append(w.m.calls, "abort "+w.path)
	return nil
}

func (m *memory) Create(_ context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, "create "+path)
	if m.fail != nil {
		if err := m.fail("create", path); err != nil {
			return nil, err
		}
	}
	mode := opts.Mode
	if mode == 0 {
		mode = workspace.DefaultFileMode
	}
	return &memoryWriter{m: m, path: path, mode: mode}, nil
}

func (m *memory) MkdirAll(_ context.Context, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, "mkdir "+path)
	if m.fail != nil {
		if err := m.fail("mkdir", path); err != nil {
			return err
		}
	}
	m.files[path] = &memoryFile{mode: fs.ModeDir | 0o755}
	return nil
}

func (m *memory) Remove(_ context.Context, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.get("remove", path); err != nil {
		return err
	}
	delete(m.files, path)
	return nil
}

// called lists the calls of an operation.
func (m *memory) called(op string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var paths []string
	for _, call := range m.calls {
		if path, ok := strings.CutPrefix(call, op+" "); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// fakeProcess is a command that does what the test says.
type fakeProcess struct {
	stdinR           *io.PipeReader
	stdinW           *io.PipeWriter
	stdoutR, stderrR io.Reader
	stdoutW, stderrW *io.PipeWriter
	exited           chan struct{}
	exitOnce         sync.Once
	code             int
	err              error

	mu       sync.Mutex
	signals  []workspace.Signal
	stops    []time.Duration
	closed   int
	onStop   func(grace time.Duration) string // nil: it exits at once
	onSignal func(workspace.Signal) error
}

func newFakeProcess() *fakeProcess {
	p := &fakeProcess{exited: make(chan struct{})}
	p.stdinR, p.stdinW = io.Pipe()
	p.stdoutR, p.stdoutW = io.Pipe()
	p.stderrR, p.stderrW = io.Pipe()
	return p
}

// exit ends it, with its outputs.
func (p *fakeProcess) exit(code int, err error) {
	p.exitOnce.Do(func() {
		p.code, p.err = code, err
		_ = p.stdoutW.Close()
		_ = p.stderrW.Close()
		_ = p.stdinR.Close()
		close(p.exited)
	})
}

func (p *fakeProcess) Stdin() io.WriteCloser { return p.stdinW }
func (p *fakeProcess) Stdout() io.Reader     { return p.stdoutR }
func (p *fakeProcess) Stderr() io.Reader     { return p.stderrR }
func (p *fakeProcess) Wait() (int, error)    { <-p.exited; return p.code, p.err }

func (p *fakeProcess) Signal(_ context.Context, sig workspace.Signal) error {
	p.mu.Lock()
	p.signals = append(p.signals, sig)
	onSignal := p.onSignal
	p.mu.Unlock()
	if onSignal != nil {
		return onSignal(sig)
	}
	return nil
}

func (p *fakeProcess) Stop(grace time.Duration) string {
	p.mu.Lock()
	p.stops = append(p.stops, grace)
	onStop := p.onStop
	p.mu.Unlock()
	if onStop != nil {
		return onStop(grace)
	}
	p.exit(143, nil)
	return ""
}

func (p *fakeProcess) Close() error {
	p.mu.Lock()
	p.closed++
	p.mu.Unlock()
	for _, r := range []io.Reader{p.stdoutR, p.stderrR} {
		if closer, ok := r.(io.Closer); ok {
			_ = closer.Close()
		}
	}
	return nil
}

func (p *fakeProcess) stopped() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.stops)
}

// runner is a workspace whose commands are the test's.
type runner struct {
	*bare
	features []workspace.Feature
	start    func(ctx context.Context, cmd Command) (Process, error)
}

func (w *runner) Start(ctx context.Context, cmd Command) (Process, error) { return w.start(ctx, cmd) }
func (w *runner) Announce() []workspace.Feature                           { return w.features }

// starting gives p for every command and hands cmd to seen.
func starting(p Process, seen ...*Command) *runner {
	return &runner{bare: newBare(), features: []workspace.Feature{workspace.FeatureShell}, start: func(_ context.Context, cmd Command) (Process, error) {
		for _, s := range seen {
			*s = cmd
		}
		return p, nil
	}}
}
