package host

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// ProviderStatus tells how a provider is.
type ProviderStatus struct {
	// Name is the configured one, Plugin the NAME of its binary.
	Name   string `json:"name"`
	Plugin string `json:"plugin"`
	// State is the supervisor's word, such as "stopped" or "running".
	State string `json:"state"`
	// Version, Path and Digest are of the binary, as far as it was started.
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// Locked says that nothing but the bytes of that digest may run, RolledBackFrom
	// what stood in the plugin folder when the operator went back to them.
	Locked         bool   `json:"locked,omitempty"`
	RolledBackFrom string `json:"rolled_back_from,omitempty"`
	// PID is the plugin's process, zero if none runs.
	PID int `json:"pid,omitempty"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Restarts counts how often it had to be started again.
	Restarts int `json:"restarts"`
	// InFlight counts the calls that it is answering, and those that are leaving.
	InFlight int `json:"in_flight"`
	// Leaving counts the older processes that finish what they have.
	Leaving int `json:"leaving,omitempty"`
	// SwapError is why the newest binary does not serve.
	SwapError string `json:"swap_error,omitempty"`
	// LastError is what last went wrong with the process or its start.
	LastError string `json:"last_error,omitempty"`
	// Quarantine is why no call starts it, since when, and what does: it died too
	// often. Empty otherwise.
	Quarantine string `json:"quarantine,omitempty"`
	// Features are what workspaces of it may have, and what it has itself.
	Features []workspace.Feature `json:"features,omitempty"`
	// Ephemeral says that its workspaces die with its process.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Deviations are the contract's rules that it does not keep.
	Deviations []Deviation `json:"deviations,omitempty"`
	// Environment names the conventional variables that were sent to it.
	Environment []string `json:"environment,omitempty"`
}

// Deviation is a rule of the contract that a provider does not keep, and why.
type Deviation struct {
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
}

// Providers tells the status of every configured provider, sorted by name. It
// starts nothing and never blocks.
func (h *Host) Providers() []ProviderStatus {
	list := make([]ProviderStatus, 0, len(h.providers))
	for _, name := range sortedKeys(h.providers) {
		list = append(list, h.providers[name].status())
	}
	return list
}

// Check starts the provider's plugin, if it does not run, has it describe and
// configure itself, and tells its status; the error is why it did not start.
func (h *Host) Check(ctx context.Context, provider string) (ProviderStatus, error) {
	p, err := h.provider(provider)
	if err != nil {
		return ProviderStatus{}, err
	}
	inst, err := p.acquire(ctx)
	if err != nil {
		st := p.status()
		st.LastError = err.Error()
		return st, err
	}
	defer inst.Release()
	if inst.Binary().Path != "" {
		// A start does not wait for it. Without it the status is the same but for
		// that, and why will show when the file is used next.
		_, _ = inst.Binary().Digest()
	}
	return p.status(), nil
}

func (p *provider) status() ProviderStatus {
	st := p.super.Status()
	out := ProviderStatus{
		Name: p.name, Plugin: p.plugin, State: string(st.State), Since: st.Since,
		Version: st.Version, Path: st.Path, Digest: st.Digest,
		PID: st.PID, Restarts: st.Restarts, InFlight: st.Calls, Leaving: st.Leaving, Environment: st.Sent,
		Ephemeral: st.Configured.GetEphemeral(),
	}
	out.Locked, out.RolledBackFrom = st.Pinned, st.Pin.RolledBackFrom
	if st.LastError != nil {
		out.LastError = st.LastError.Error()
	}
	if st.Quarantine != nil {
		out.Quarantine = st.Quarantine.Reason
	}
	if st.SwapError != nil {
		out.SwapError = st.SwapError.Error()
	}
	features := wire.ToFeatures(append(slices.Clone(st.Features), st.Configured.GetFeatures()...))
	out.Features = slices.Sorted(maps.Keys(features))
	for _, d := range st.Configured.GetDeviations() {
		out.Deviations = append(out.Deviations, Deviation{Rule: d.GetRule(), Reason: d.GetReason()})
	}
	return out
}

// hostVersion is that of the module this is built from, for plugins' logs.
func hostVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/berth-dev/berth" {
			return m.Version
		}
	}
	return ""
}
