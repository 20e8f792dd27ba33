package sdk_test

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// Config is what an operator writes under config: for this plugin.
type Config struct {
	Region string `json:"region" jsonschema:"description=Where workspaces live" berth:"per_workspace"`
	Token  string `json:"token" berth:"secret"`
}

// Rooms is a provider that only remembers which workspaces there are.
type Rooms struct {
	mu    sync.Mutex
	rooms map[string]bool
}

func NewRooms(context.Context, Config, sdk.Env) (sdk.Provider, error) {
	return &Rooms{rooms: map[string]bool{}}, nil
}

// Create makes a workspace under its token or name: asked again, the same one.
func (r *Rooms) Create(_ context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rooms[req.Key()] = true
	return Room{req.Key()}, nil
}

// Attach never creates.
func (r *Rooms) Attach(_ context.Context, id string) (sdk.Workspace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.rooms[id] {
		return nil, fmt.Errorf("room %s: %w", id, workspace.ErrUnavailable)
	}
	return Room{id}, nil
}

// Destroy is done when there is nothing already.
func (r *Rooms) Destroy(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rooms, id)
	return nil
}

// Room is a workspace. With methods of sdk.Commander it would run commands, with
// those of sdk.Filesystem it would hold files.
type Room struct{ id string }

func (r Room) ID() string          { return r.id }
func (r Room) Incarnation() string { return "1" }
func (r Room) WorkingDir() string  { return "/" }

func rooms() sdk.Plugin[Config] {
	return sdk.Plugin[Config]{Name: "rooms", Version: "0.1.0", New: NewRooms, Workspace: Room{}}
}

// The main function of a plugin is one line.
func ExampleServe() {
	main := func() { sdk.Serve(rooms()) }
	_ = main // a host starts the binary berth-provider-rooms
}

// In a test, or in a program that embeds its provider, the same plugin is served
// without a process of its own.
func ExamplePlugin_Register() {
	server := grpc.NewServer()
	rooms().Register(server)
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient("passthrough:rooms", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	plugin, err := berthv1.NewProviderClient(conn).Describe(context.Background(), &berthv1.DescribeRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plugin.GetName(), plugin.GetVersion())
	// Output: rooms 0.1.0
}

func ExampleOverride() {
	base := Config{Region: "north", Token: "secret"}
	config, err := sdk.Override(base, []byte(`{"region": "south"}`))
	fmt.Println(config.Region, err)
	_, err = sdk.Override(base, []byte(`{"token": "other"}`))
	fmt.Println(err)
	// Output:
	// south <nil>
	// config key token cannot be set for one workspace: invalid request
}
