package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/host/hosttest"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// keeper keeps things beside its workspaces, of which it has none.
type keeper struct {
	plain
	asked []workspace.SweepOptions
	fails error
}

func (k *keeper) Sweep(_ context.Context, opts workspace.SweepOptions) ([]workspace.Leftover, error) {
	k.asked = append(k.asked, opts)
	return []workspace.Leftover{{Kind: "volume", Name: "v\xff"}, {Kind: "image", Name: "i"}}, k.fails
}

// plain has nothing at all.
type plain struct{}

func (plain) Create(context.Context, sdk.CreateRequest) (sdk.Workspace, error) {
	return nil, errors.ErrUnsupported
}
func (plain) Attach(context.Context, string) (sdk.Workspace, error) {
	return nil, workspace.ErrUnavailable
}
func (plain) Destroy(context.Context, string) error { return nil }

func sweepers(t *testing.T, providers map[string]sdk.Provider) *host.Host {
	t.Helper()
	plugins := map[string]hosttest.Registrar{}
	for name, provider := range providers {
		plugins[name] = sdk.Plugin[struct{}]{Name: name, New: func(context.Context, struct{}, sdk.Env) (sdk.Provider, error) { return provider, nil }}
	}
	return hosttest.New(t, plugins)
}

func TestSweepTellsWhatWasRemoved(t *testing.T) {
	k := &keeper{}
	h := sweepers(t, map[string]sdk.Provider{"keeper": k, "plain": plain{}})
	opts := workspace.SweepOptions{DryRun: true, OlderThan: time.Hour}
	got, err := h.Sweep(t.Context(), "keeper", opts)
	if want := []workspace.Leftover{{Kind: "volume", Name: "v\uFFFD"}, {Kind: "image", Name: "i"}}; err != nil || !slices.Equal(got, want) || !slices.Equal(k.asked, []workspace.SweepOptions{opts}) {
		t.Errorf("%v, %v; asked %v", got, err, k.asked)
	}
	if _, err := h.Sweep(t.Context(), "plain", workspace.SweepOptions{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a provider that keeps nothing: %v", err)
	}
	if _, err := h.Sweep(t.Context(), "keeper", workspace.SweepOptions{OlderThan: -1}); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("a negative age: %v", err)
	}
	if _, err := h.Sweep(t.Context(), "nobody", workspace.SweepOptions{}); err == nil {
		t.Error("no error of a provider that is not there")
	}
	k.fails = fmt.Errorf("the third: %w", workspace.ErrTransient)
	if _, err := h.Sweep(t.Context(), "keeper", workspace.SweepOptions{}); !errors.Is(err, workspace.ErrTransient) || !strings.Contains(err.Error(), "2 others were removed") {
		t.Errorf("one that fails half way: %v", err)
	}
}
