package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/workspace"
)

// PluginDiff is how one binary of a plugin differs from another, and what that means
// for the host's configuration.
type PluginDiff struct {
	Plugin string `json:"plugin"`
	// Old is what a start would take now, or the locked release if another one stands
	// in the plugin folder; New is the other binary.
	Old PluginDescription `json:"old"`
	New PluginDescription `json:"new"`
	// Features, Environment and Companions tell what came and what went.
	Features    Changes `json:"features"`
	Environment Changes `json:"environment"`
	Companions  Changes `json:"companions"`
	// Schema tells of every key of the configuration that is not as it was.
	Schema []SchemaChange `json:"schema"`
	// Breaks tell what of the configuration the new one would not take.
	Breaks []Break `json:"breaks"`
}

// Changes of a list.
type Changes struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

func changes(before, after []string) Changes {
	missing := func(from, in []string) []string {
		return slices.Sorted(func(yield func(string) bool) {
			for _, s := range from {
				if !slices.Contains(in, s) && !yield(s) {
					return
				}
			}
		})
	}
	return Changes{Added: missing(after, before), Removed: missing(before, after)}
}

// Break is something of the configuration that would not work any more.
type Break struct {
	// Provider is the configured one, empty if it is no single one's.
	Provider string `json:"provider,omitempty"`
	// File, Line and Key say where it stands.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Key  string `json:"key,omitempty"`
	// Reason repeats no value.
	Reason string `json:"reason"`
}

// ComparePlugin describes a plugin, as a start would take it now, and another
// binary of it. Where a start would be refused, since what was installed is not
// locked yet, it is the locked release that is compared, if there is a copy of it.
// Both are started to describe themselves and ended; neither is configured.
func (h *Host) ComparePlugin(ctx context.Context, plugin, binary string) (PluginDiff, error) {
	if err := workspace.ValidateName(plugin); err != nil {
		return PluginDiff{}, fmt.Errorf("plugin %w", err)
	}
	before, err := h.describe(ctx, plugin, func() (catalog.Binary, error) { return h.pins.findOrCopy(plugin) })
	if err != nil {
		return PluginDiff{}, err
	}
	path, err := filepath.Abs(binary)
	if err != nil {
		return PluginDiff{}, fmt.Errorf("binary %s: %w", binary, err)
	}
	after, err := h.describe(ctx, plugin, func() (catalog.Binary, error) {
		other := catalog.At(plugin, path)
		if err := catalog.CheckExecutable(path); err != nil {
			return other, fmt.Errorf("plugin %s: %w", plugin, err)
		}
		return other, h.pins.trust(other)
	})
	if err != nil {
		return PluginDiff{}, err
	}
	diff := PluginDiff{
		Plugin: plugin, Old: before, New: after,
		Features:    changes(before.Features, after.Features),
		Environment: changes(before.Environment, after.Environment),
		Companions:  changes(before.Companions, after.Companions),
	}
	oldSchema, err := compileSchema(before.Schema)
	if err != nil {
		return PluginDiff{}, &workspace.PluginError{Provider: plugin, Op: "describe", Reason: err.Error()}
	}
	newSchema, err := compileSchema(after.Schema)
	if err != nil {
		return PluginDiff{}, &workspace.PluginError{Provider: plugin, Op: "describe", Reason: err.Error()}
	}
	diff.Schema = schemaChanges(oldSchema, newSchema)
	if after.Name != before.Name {
		diff.Breaks = append(diff.Breaks, Break{Reason: fmt.Sprintf("%s is the plugin %q, not %q", path, shorten(after.Name), shorten(before.Name))})
	}
	for _, name := range sortedKeys(h.providers) {
		if p := h.providers[name]; p.plugin == plugin && p.config.InProcess == nil {
			diff.Breaks = append(diff.Breaks, p.breaks(newSchema)...)
		}
	}
	return diff, nil
}

// breaks tells what of a provider's configuration a schema does not allow.
func (p *provider) breaks(s *schema) []Break {
	var list []Break
	for _, fault := range s.faults(p.config.Config) {
		var at *ConfigError
		if !errors.As(p.config.explain("providers."+p.name+".config", fault), &at) {
			continue
		}
		list = append(list, Break{Provider: p.name, File: at.File, Line: at.Line, Key: at.Key, Reason: at.Reason})
	}
	return list
}
