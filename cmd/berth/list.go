package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// list asks the named providers, or all of them, what they made, all at once.
// What one of them cannot tell is an error beside what the others tell. One
// that has no listing is passed over, unless it was named; so is, with a word, one
// that nobody has configured and whose service is not there.
func (a *app) list(ctx context.Context, h *host.Host, providers []string, opts workspace.ListOptions) ([]workspace.Info, error) {
	named := len(providers) > 0
	if !named {
		for _, status := range h.Providers() {
			providers = append(providers, status.Name)
		}
	}
	providers = slices.Compact(slices.Sorted(slices.Values(providers))) // each once, however often it was named
	found, errs := make([][]workspace.Info, len(providers)), make([]error, len(providers))
	var wg sync.WaitGroup
	for i, provider := range providers {
		wg.Go(func() {
			for info, err := range h.List(ctx, provider, opts) {
				if err != nil {
					errs[i] = err
					return
				}
				found[i] = append(found[i], info)
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if named || err == nil || !a.leftOut(err) {
			continue
		}
		if errs[i] = nil; !errors.Is(err, errors.ErrUnsupported) {
			a.say("left out: %v", err)
		}
	}
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b workspace.Info) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	return all, errors.Join(errs...)
}

var workspaceHeading = []string{"REF", "STATE", "AGE", "LABELS", "DETAILS"}

// workspaceRows are workspaces in a listing.
func workspaceRows(infos []workspace.Info, now time.Time) []display.Row {
	rows := make([]display.Row, len(infos))
	for i, info := range infos {
		object := struct {
			Ref      string            `json:"ref"`
			Provider string            `json:"provider"`
			ID       string            `json:"id"`
			Name     string            `json:"name,omitempty"`
			State    string            `json:"state,omitempty"`
			Created  *time.Time        `json:"created,omitempty"`
			Labels   map[string]string `json:"labels"`
			Details  map[string]string `json:"details"`
		}{info.Ref.String(), info.Ref.Provider, info.Ref.ID, info.Name, info.State, nil, info.Labels, info.Details}
		if object.Labels == nil {
			object.Labels = map[string]string{}
		}
		if object.Details == nil {
			object.Details = map[string]string{}
		}
		if !info.Created.IsZero() {
			created := info.Created.UTC()
			object.Created = &created
		}
		rows[i] = display.Row{
			Name:   info.Ref.String(),
			Cells:  []string{info.Ref.String(), cell(info.State), age(info.Created, now), cell(pairs(info.Labels)), cell(pairs(info.Details))},
			Object: object,
		}
	}
	return rows
}

// cell is a value in a table, and - for none.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return display.Name(s)
}

func pairs(m map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, key+"="+m[key])
	}
	return strings.Join(parts, ",")
}

// age is how long ago something was made, in the largest unit that tells enough.
func age(created, now time.Time) string {
	const day = 24 * time.Hour
	switch d := now.Sub(created); {
	case created.IsZero():
		return "-"
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/day)
	}
}

// leftOut says whether the error of a provider that was not named is no fault of the
// whole: it has no such call, or it is only there because its plugin was found, and
// its service cannot be used here.
func (a *app) leftOut(err error) bool {
	unusable := errors.Is(err, workspace.ErrTransient) || errors.Is(err, workspace.ErrInvalid)
	return errors.Is(err, errors.ErrUnsupported) || a.unasked && unusable
}
