package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// closeStopGrace is the time between TERM and KILL for runs that are still going
// when their plugin is told to end: half of what the end of the process has.
const closeStopGrace = 500 * time.Millisecond

// Register serves the plugin on r in this process, as a plugin process would: a
// fresh provider each time, to be configured by whoever connects. If r has a
// method OnStop(func()), it is given the function that stops the runs and closes
// the provider. A server of one's own is made with [wire.ServerOptions]: files need
// their codec.
func (p Plugin[C]) Register(r grpc.ServiceRegistrar) {
	logger := p.Logger
	if logger == nil {
		logger = hclog.New(&hclog.LoggerOptions{Name: p.Name, Level: hclog.Error, Output: os.Stderr})
	}
	s := newServer(p.definition(), logger, &redactor{})
	s.register(r)
	if stopper, ok := r.(interface{ OnStop(func()) }); ok {
		stopper.OnStop(s.close)
	}
}

// definition is a [Plugin] without its type parameter.
type definition struct {
	name, version string
	workspace     Workspace
	environment   []string
	companions    []string
	durableRuns   bool
	schema        func() (*configSchema, error)
	// newProvider decodes the configuration strictly and calls New.
	newProvider func(ctx context.Context, schema *configSchema, raw json.RawMessage, env Env) (Provider, map[string]string, error)
	// setEnvironment applies the conventional variables, nil where this process
	// is not the plugin's own.
	setEnvironment func(map[string]string) error
	// setLogLevel changes what this process logs, nil as above.
	setLogLevel func(hclog.Level)
}

func (p Plugin[C]) definition() definition {
	return definition{
		name:        p.Name,
		version:     p.Version,
		workspace:   p.Workspace,
		environment: p.Environment,
		companions:  p.Companions,
		durableRuns: p.DurableRuns,
		schema: sync.OnceValues(func() (*configSchema, error) {
			return reflectSchema(reflect.TypeFor[C]())
		}),
		newProvider: func(ctx context.Context, schema *configSchema, raw json.RawMessage, env Env) (Provider, map[string]string, error) {
			config, err := decodeConfig[C](schema, raw)
			if err != nil {
				return nil, nil, err
			}
			var vars map[string]string
			if field, ok := schema.fields[envKey]; ok {
				vars = reflect.ValueOf(&config).Elem().FieldByIndex(field.index).Interface().(map[string]string)
				if err := workspace.ValidateEnv(vars); err != nil {
					return nil, nil, fmt.Errorf("config key %s: %w", envKey, err)
				}
			}
			provider, err := p.New(ctx, config, env)
			if err == nil && isNil(provider) {
				err = errors.New("the plugin's New returned no provider and no error")
			}
			return provider, vars, err
		},
	}
}

// server serves berth.v1 for one provider.
type server struct {
	berthv1.UnimplementedProviderServer

	def      definition
	logger   hclog.Logger
	redactor *redactor
	cache    *cache
	runs     *registry
	creates  keyLock

	// alive ends when the server closes: what outlasts a call hangs on it.
	alive context.Context
	end   context.CancelFunc
	// background are goroutines that outlast the call that started them.
	background tasks
	// calls are those that are being answered.
	calls tasks

	// As the constants of these names.
	orphanWait, outcomeWait, watchLinger time.Duration

	mu         sync.Mutex
	state      *configured // nil before Configure
	configures bool        // one Configure is under way
}

// configured is what Configure leaves.
type configured struct {
	provider Provider
	name     string
	env      map[string]string
	labels   bool
	logger   hclog.Logger
}

func newServer(def definition, logger hclog.Logger, redactor *redactor) *server {
	alive, end := context.WithCancel(context.Background())
	s := &server{def: def, logger: logger, redactor: redactor, alive: alive, end: end, runs: newRegistry(), orphanWait: orphanWait, outcomeWait: outcomeWait, watchLinger: watchLinger}
	s.cache = newCache(s)
	return s
}

// goSafely runs fn in a goroutine that close waits for. A panic of a provider
// ends in the log.
func (s *server) goSafely(what string, fn func()) {
	s.background.goes(func() {
		_ = s.safely(what, func() error { fn(); return nil })
	})
}

// safely turns a panic in fn, which calls into the provider, into an error with
// its stack in the log (contract B1).
func (s *server) safely(what string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(what, p)
		}
	}()
	return fn()
}

func (s *server) panicked(what string, p any) error {
	text := s.redactor.text(fmt.Sprint(p))
	s.logger.Error("panic", "doing", what, "panic", text, "stack", string(debug.Stack()))
	return fmt.Errorf("plugin %s: panic in %s: %s (the stack is in its log)", s.def.name, what, text)
}

// register adds the service with its handlers wrapped: whatever server they
// run in, a panic is an error, and every error carries its detail.
func (s *server) register(r grpc.ServiceRegistrar) {
	desc := berthv1.Provider_ServiceDesc
	desc.Methods = make([]grpc.MethodDesc, len(berthv1.Provider_ServiceDesc.Methods))
	for i, m := range berthv1.Provider_ServiceDesc.Methods {
		handler := m.Handler
		m.Handler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (answer any, err error) {
			defer s.calls.begin()()
			err = s.safely(m.MethodName, func() error {
				answer, err = handler(srv, ctx, dec, interceptor)
				return err
			})
			return answer, s.toStatus(err)
		}
		desc.Methods[i] = m
	}
	desc.Streams = make([]grpc.StreamDesc, len(berthv1.Provider_ServiceDesc.Streams))
	for i, d := range berthv1.Provider_ServiceDesc.Streams {
		handler := d.Handler
		d.Handler = func(srv any, stream grpc.ServerStream) error {
			defer s.calls.begin()()
			return s.toStatus(s.safely(d.StreamName, func() error { return handler(srv, stream) }))
		}
		desc.Streams[i] = d
	}
	r.RegisterService(&desc, s)
}

func (s *server) toStatus(err error) error {
	return wire.ToStatus(s.redactor.clean(err))
}

// notConfigured has the code that the protocol names for it.
func notConfigured() error {
	const text = "the provider is not configured yet"
	st, err := status.New(codes.FailedPrecondition, text).WithDetails(&berthv1.ErrorDetail{Message: []byte(text)})
	if err != nil {
		return status.Error(codes.FailedPrecondition, text)
	}
	return st.Err()
}

func (s *server) configured() (*configured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == nil {
		return nil, notConfigured()
	}
	return s.state, nil
}

// close stops the runs, gives up the workspaces and closes the provider. It
// does not wait for a provider that hangs.
func (s *server) close() {
	s.end()
	s.runs.stopAll(closeStopGrace)
	s.cache.forgetAll()
	s.cache.closing.wait(workspaceCloseWait)
	s.mu.Lock()
	state := s.state
	s.state = nil
	s.mu.Unlock()
	if state != nil {
		if closer, ok := state.provider.(io.Closer); ok {
			if err := s.safely("Close", closer.Close); err != nil {
				s.logger.Warn("closing the provider", "error", s.redactor.text(err.Error()))
			}
		}
	}
	if !s.background.wait(closeWait) {
		s.logger.Warn("closing: calls of the provider have not come back")
	}
}

const (
	// workspaceCloseWait is how long the provider's own Close waits for those of
	// its workspaces: it must come to its turn before contract B4's two seconds
	// are over.
	workspaceCloseWait = 500 * time.Millisecond
	// closeWait is how long close waits for all that the provider still does: as
	// long as go-plugin's host waits for the process to end.
	closeWait = 2 * time.Second
)

// isNil also finds a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface, reflect.Slice, reflect.Chan:
		return rv.IsNil()
	default:
		return false
	}
}

// utf8Text makes a text fit for a protobuf string.
func utf8Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
