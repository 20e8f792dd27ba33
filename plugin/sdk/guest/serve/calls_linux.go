package serve

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// WorkspaceID is the id of the one workspace that a guest serves.
const WorkspaceID = "guest"

// calls are those of berth.v1, served by the SDK's own server. It is one for all
// connections: a client that comes again finds the runs of the one before.
type calls struct {
	desc *grpc.ServiceDesc
	impl any
	stop func()
	once sync.Once
}

func newCalls(ctx context.Context, version string, ws *posix.Workspace, logger hclog.Logger) (*calls, error) {
	c := &calls{stop: func() {}}
	sdk.Plugin[struct{}]{
		Name: "guest", Version: version, Workspace: (*posix.Workspace)(nil), Logger: logger,
		DurableRuns: true, // this process outlives whoever connects
		New: func(context.Context, struct{}, sdk.Env) (sdk.Provider, error) {
			return provider{machine{ws}}, nil
		},
	}.Register(c)
	server, ok := c.impl.(berthv1.ProviderServer)
	if !ok {
		return nil, fmt.Errorf("the SDK registered a %T, which serves no berth.v1", c.impl)
	}
	if _, err := server.Configure(ctx, &berthv1.ConfigureRequest{Provider: "guest"}); err != nil {
		return nil, fmt.Errorf("preparing the workspace: %w", err)
	}
	return c, nil
}

// RegisterService takes what the SDK would have a gRPC server serve.
func (c *calls) RegisterService(desc *grpc.ServiceDesc, impl any) { c.desc, c.impl = desc, impl }

// OnStop takes the function that stops the runs.
func (c *calls) OnStop(stop func()) { c.stop = stop }

// register serves the calls but for those that make and end workspaces: this
// one is there, and its provider's to end.
func (c *calls) register(server *grpc.Server) {
	desc := *c.desc
	desc.Methods = slices.DeleteFunc(slices.Clone(desc.Methods), func(m grpc.MethodDesc) bool {
		return m.MethodName == "Configure" || m.MethodName == "Destroy"
	})
	desc.Streams = slices.DeleteFunc(slices.Clone(desc.Streams), func(s grpc.StreamDesc) bool {
		return s.StreamName == "Create" || s.StreamName == "List"
	})
	server.RegisterService(&desc, c.impl)
}

// close stops the runs.
func (c *calls) close() { c.once.Do(c.stop) }

// provider has the one workspace.
type provider struct{ machine machine }

// Create is for nobody: the calls that lead here are not served.
func (p provider) Create(context.Context, sdk.CreateRequest) (sdk.Workspace, error) {
	return nil, fmt.Errorf("a guest makes no workspaces: %w", workspace.ErrInvalid)
}

// Attach opens the one workspace.
func (p provider) Attach(_ context.Context, id string) (sdk.Workspace, error) {
	if id != WorkspaceID {
		return nil, fmt.Errorf("a guest has just one workspace, %s: %w", WorkspaceID, workspace.ErrInvalid)
	}
	return p.machine, nil
}

// Destroy is for nobody, as Create.
func (p provider) Destroy(context.Context, string) error {
	return fmt.Errorf("a guest ends no workspaces: %w", workspace.ErrInvalid)
}

// machine stays open for as long as the guest runs, whoever gives it up.
type machine struct{ *posix.Workspace }

// Close does nothing.
func (machine) Close() error { return nil }
