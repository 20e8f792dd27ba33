package host

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// handle is a workspace as embedders hold it. It owns "create once" (contract
// L2) and outlives its plugin: whatever the plugin must know again goes with
// each call.
type handle struct {
	p     *provider
	byRef bool // by ref: never creates

	// What a create asks for. The token is the same for every try.
	token, name string
	labels      map[string]string
	config      map[string]any    // without env
	env         map[string]string // goes with each command
	progress    func(workspace.Progress)

	mu      sync.Mutex
	ref     workspace.Ref // once set, it never changes (contract L5)
	session *session
	opening *opening
	// registry is who notes the ids of the workspace's runs, as was told last: by its
	// opening, or by a command that was started.
	registry []byte
}

var _ workspace.Workspace = (*handle)(nil)

// session is what opening a workspace answered.
type session struct {
	key      *berthv1.WorkspaceKey
	dir      string
	features workspace.Features
}

func newHandle(p *provider, opts []workspace.Option) (*handle, error) {
	o := options(opts)
	h := &handle{p: p, token: o.Token, name: o.Name, labels: maps.Clone(o.Labels), progress: o.Progress}
	if h.token == "" {
		h.token = workspace.NewToken()
	} else if !workspace.IsToken(h.token) {
		return nil, fmt.Errorf("provider %s: token %q: want berth- and 16 hex digits, as NewToken gives: %w", p.name, shorten(h.token), workspace.ErrInvalid)
	}
	if h.name != "" {
		if err := workspace.ValidateWorkspaceName(h.name); err != nil {
			return nil, fmt.Errorf("provider %s: workspace %w", p.name, err)
		}
	}
	if err := workspace.ValidateLabels(h.labels); err != nil {
		return nil, fmt.Errorf("provider %s: %w", p.name, err)
	}
	var err error
	if h.config, h.env, err = splitOverrides(o.Config); err != nil {
		return nil, fmt.Errorf("provider %s: %w", p.name, err)
	}
	return h, nil
}

func newAttached(p *provider, ref workspace.Ref, opts []workspace.Option) (*handle, error) {
	o := options(opts)
	if o.Name != "" || o.Token != "" || len(o.Labels) > 0 {
		return nil, fmt.Errorf("attach %s: a name, a token and labels are for creating: %w", ref, workspace.ErrInvalid)
	}
	h := &handle{p: p, byRef: true, ref: ref, progress: o.Progress}
	var err error
	if h.config, h.env, err = splitOverrides(o.Config); err != nil {
		return nil, fmt.Errorf("attach %s: %w", ref, err)
	}
	for _, key := range sortedKeys(h.config) {
		return nil, fmt.Errorf("attach %s: config key %q: only env can be given to a workspace that exists: %w", ref, shorten(key), workspace.ErrInvalid)
	}
	return h, nil
}

func options(opts []workspace.Option) workspace.OpenOptions {
	var o workspace.OpenOptions
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// on says what an operation of this handle is about.
func (h *handle) on() string {
	if ref, ok := h.Ref(); ok {
		return ref.String()
	}
	if h.name != "" {
		return h.p.name + "/ (named " + h.name + ")"
	}
	return h.p.name + "/ (new)"
}

func (h *handle) op(name string, changes bool) operation {
	return operation{name: name, on: h.on(), changes: changes}
}

// Ref is the way back, once there is one.
func (h *handle) Ref() (workspace.Ref, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ref, !h.ref.IsZero()
}

// WorkingDir is absolute and canonical (contract C2).
func (h *handle) WorkingDir(ctx context.Context) (string, error) {
	s, err := h.open(ctx)
	if err != nil {
		return "", err
	}
	return s.dir, nil
}

// Features says what this workspace and its provider have.
func (h *handle) Features(ctx context.Context) (workspace.Features, error) {
	s, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	return maps.Clone(s.features), nil
}

// FS is the workspace's files as io/fs.
func (h *handle) FS(ctx context.Context) fs.FS { return workspace.NewFS(ctx, h) }
