package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

type openStream = grpc.ServerStreamingServer[berthv1.OpenResponse]

// Create makes a workspace, or opens the one of the same token or name.
func (s *server) Create(req *berthv1.CreateRequest, stream openStream) error {
	state, err := s.configured()
	if err != nil {
		return err
	}
	create, err := createRequest(req, state)
	if err != nil {
		return err
	}
	schema, err := s.def.schema()
	if err != nil {
		return err
	}
	var own redactor
	own.set(schema.secrets(create.Overrides))
	return own.clean(s.open(stream, func(ctx context.Context, report func(Progress)) (*entry, error) {
		// Tries of one create follow each other: a provider need not be prepared to
		// race itself, only other processes.
		unlock, err := s.creates.lock(ctx, create.Key())
		if err != nil {
			return nil, fmt.Errorf("creating workspace %s: %w", create.Key(), err)
		}
		defer unlock()
		var ws Workspace
		if err := s.safely("Create", func() error {
			ws, err = state.provider.Create(withReport(ctx, report), create)
			return err
		}); err != nil {
			return nil, err
		}
		return s.cache.add(ws)
	}))
}

func createRequest(req *berthv1.CreateRequest, state *configured) (CreateRequest, error) {
	create := CreateRequest{
		Token:     req.GetToken(),
		Name:      req.GetName(),
		Labels:    maps.Clone(req.GetLabels()),
		Overrides: json.RawMessage(req.GetOverrides()),
	}
	if len(create.Overrides) == 0 {
		create.Overrides = nil
	}
	if !workspace.IsToken(create.Token) {
		return create, fmt.Errorf("create: token %q: want berth- and 16 hex digits: %w", create.Token, workspace.ErrInvalid)
	}
	if create.Name != "" {
		if err := workspace.ValidateWorkspaceName(create.Name); err != nil {
			return create, fmt.Errorf("create: %w", err)
		}
	}
	if len(create.Labels) > 0 {
		if !state.labels {
			return create, unsupported("create: labels: provider %s has none", state.name)
		}
		if err := workspace.ValidateLabels(create.Labels); err != nil {
			return create, fmt.Errorf("create: %w", err)
		}
	}
	return create, nil
}

// Attach opens an existing workspace. It always asks the provider: a cached one
// may have been stopped or ended meanwhile (contract L3).
func (s *server) Attach(req *berthv1.AttachRequest, stream openStream) error {
	key := req.GetWorkspace()
	if _, err := s.configured(); err != nil {
		return err
	}
	if _, err := workspace.DecodeID(key.GetId()); err != nil {
		return err
	}
	return s.open(stream, func(ctx context.Context, report func(Progress)) (*entry, error) {
		e, err := s.cache.attach(ctx, key.GetId(), report)
		if err != nil {
			return nil, err
		}
		if want := string(key.GetIncarnation()); want != "" && want != e.incarnation {
			s.cache.release(e)
			return nil, replaced(key.GetId())
		}
		return e, nil
	})
}

// open runs one Create or Attach beside its stream, so that progress is sent as
// it comes and a caller who leaves is not held by a provider that does not look
// at its context.
func (s *server) open(stream openStream, do func(context.Context, func(Progress)) (*entry, error)) error {
	type result struct {
		opened *berthv1.Opened
		err    error
	}
	ctx := stream.Context()
	queue, done := newProgressQueue(), make(chan result, 1)
	s.goSafely("opening a workspace", func() {
		var r result
		var e *entry
		if e, r.err = do(ctx, queue.put); r.err == nil {
			r.opened = s.opened(e)
			s.cache.release(e)
		}
		done <- r
	})
	for {
		select {
		case p := <-queue:
			if err := stream.Send(&berthv1.OpenResponse{Message: &berthv1.OpenResponse_Progress{Progress: p}}); err != nil {
				return err
			}
		case r := <-done:
			for len(queue) > 0 {
				if err := stream.Send(&berthv1.OpenResponse{Message: &berthv1.OpenResponse_Progress{Progress: <-queue}}); err != nil {
					return err
				}
			}
			if r.err != nil {
				return r.err
			}
			return stream.Send(&berthv1.OpenResponse{Message: &berthv1.OpenResponse_Opened{Opened: r.opened}})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *server) opened(e *entry) *berthv1.Opened {
	return &berthv1.Opened{
		RunRegistry: s.runRegistry(e),
		Id:          e.id,
		Incarnation: []byte(e.incarnation),
		WorkingDir:  []byte(e.workingDir),
		Features:    wire.FromFeatures(e.features),
	}
}

// Destroy ends a workspace, and first what runs in it (contract L6, L7).
func (s *server) Destroy(ctx context.Context, req *berthv1.DestroyRequest) (*berthv1.DestroyResponse, error) {
	state, err := s.configured()
	if err != nil {
		return nil, err
	}
	name, err := workspace.DecodeID(req.GetId())
	if err != nil {
		return nil, err
	}
	end := s.runs.destroying(ctx, req.GetId())
	defer end()
	if err := state.provider.Destroy(ctx, name); err != nil {
		return nil, err
	}
	s.cache.forgetID(req.GetId())
	s.runs.drop(req.GetId())
	return &berthv1.DestroyResponse{}, nil
}

// keyLock is a mutex for each key, whose waiters can leave.
type keyLock struct {
	mu   sync.Mutex
	held map[string]*keyHold
}

type keyHold struct {
	slot  chan struct{} // holds one value while the key is locked
	users int
}

func (l *keyLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*keyHold{}
	}
	h := l.held[key]
	if h == nil {
		h = &keyHold{slot: make(chan struct{}, 1)}
		l.held[key] = h
	}
	h.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if h.users--; h.users == 0 {
			delete(l.held, key)
		}
	}
	select {
	case h.slot <- struct{}{}:
		return func() { <-h.slot; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
