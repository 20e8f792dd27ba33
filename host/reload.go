package host

import (
	"context"
	"fmt"
	"time"
)

// Event is one thing that happened to a provider's plugin.
type Event struct {
	Time time.Time `json:"time"`
	// Kind is such as "started", "died", "swapped" or "swap-refused".
	Kind string `json:"kind"`
	// Text says more: process, version, binary, reason.
	Text string `json:"text"`
}

// Reload swaps the provider's plugin for what stands in the plugin folders now,
// under load. The new one is started beside the old one, described and configured;
// only then it gets the calls to come. The old one finishes those that it has, for
// [Provider.DrainLimit] at most, and ends. Runs that can be attached again move to
// the new one at once.
//
// A new one that does not come so far, or a ctx that ends before, leaves the old
// one as it is; the error, [ProviderStatus.SwapError] and [Host.Events] say why.
// The binary need not have changed. With no plugin running it starts one. A
// provider whose workspaces end with its process, or that is served in this one,
// says [errors.ErrUnsupported].
func (h *Host) Reload(ctx context.Context, provider string) error {
	p, err := h.provider(provider)
	if err != nil {
		return err
	}
	if err := h.begin(); err != nil {
		return err
	}
	defer h.tasks.Done()
	if err := p.super.Reload(ctx); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	return nil
}

// Events tells what happened to a provider's plugin, the newest last, as far as it
// is kept.
func (h *Host) Events(provider string) ([]Event, error) {
	p, err := h.provider(provider)
	if err != nil {
		return nil, err
	}
	var list []Event
	for _, e := range p.events.List() {
		list = append(list, Event(e))
	}
	return list, nil
}
