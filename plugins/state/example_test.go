package state_test

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugins/state"
	"github.com/berth-dev/berth/shared/workspace"
)

// A workspace in memory, served in this process.
func Example() {
	h, err := host.New(host.Config{Providers: map[string]host.Provider{
		"notes": {InProcess: state.Plugin("dev"), Config: map[string]any{"store": "memory", "max_total_size": "64MiB"}},
	}})
	if err != nil {
		panic(err)
	}
	defer h.Close()
	ws, err := h.Workspace("notes", workspace.WithName("conv-42"))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := ws.WriteFile(ctx, "plans/today.md", []byte("sail")); err != nil {
		panic(err)
	}
	data, err := ws.ReadFile(ctx, "plans/today.md")
	ref, _ := ws.Ref()
	fmt.Println(ref, string(data), err)
	// Output: notes/conv-42 sail <nil>
}
