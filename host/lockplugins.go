package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/copies"
	"github.com/berth-dev/berth/host/internal/lock"
	"github.com/berth-dev/berth/shared/workspace"
)

// LockedPlugin is what a lock file says of a plugin on this platform.
type LockedPlugin struct {
	Plugin   string `json:"plugin"`
	Platform string `json:"platform"`
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	// Digest is that of the binary, Companions those of the files that it finds
	// beside itself.
	Digest     string            `json:"digest"`
	Companions map[string]string `json:"companions,omitempty"`
	// Missing are files that it would find beside itself and that do not lie there.
	Missing []string `json:"missing,omitempty"`
	// Before is the digest that was locked until now, empty if none was.
	Before string `json:"before,omitempty"`
	// RolledBackFrom is the digest that was gone back from.
	RolledBackFrom string `json:"rolled_back_from,omitempty"`
}

func lockedPlugin(plugin string, before, now lock.Entry) LockedPlugin {
	l := LockedPlugin{
		Plugin: plugin, Platform: platform, Version: now.Version, Protocol: now.Protocol,
		Digest: prefixed(now.SHA256), Missing: now.Missing, Before: prefixed(before.SHA256), RolledBackFrom: prefixed(now.RolledBackFrom),
	}
	for name, digest := range now.Companions {
		if l.Companions == nil {
			l.Companions = make(map[string]string)
		}
		l.Companions[name] = prefixed(digest)
	}
	return l
}

// errNoLock is a change of a lock file where there is none.
var errNoLock = fmt.Errorf("there is no lock file: one lies beside a configuration file, or is named by Config.Lock: %w", workspace.ErrInvalid)

// LockPlugins writes into [Config.Lock] what stands in the plugin folders now, of
// the plugins that are named, or of those of all providers. Each is started to
// describe it, then once more from its copy. What is locked for other platforms
// stays. Nothing is written if one fails.
func (h *Host) LockPlugins(ctx context.Context, plugins ...string) ([]LockedPlugin, error) {
	if h.pins.lock == nil {
		return nil, errNoLock
	}
	releases := make(map[string]lock.Release)
	for _, plugin := range h.pluginsOr(plugins) {
		release, kept, err := h.release(ctx, plugin)
		if err != nil {
			return nil, err
		}
		defer kept.Release() // when it is written that it is needed
		releases[plugin] = release
	}
	var written []LockedPlugin
	err := lock.Update(h.pins.lock.path, func(f *lock.File) error {
		for _, plugin := range sortedKeys(releases) {
			if f.Plugins[plugin].Platforms == nil {
				f.Plugins[plugin] = lock.Plugin{Platforms: make(map[string]lock.Entry)}
			}
			before := f.Plugins[plugin].Platforms[platform]
			next := before.Forward(releases[plugin])
			f.Plugins[plugin].Platforms[platform] = next
			written = append(written, lockedPlugin(plugin, before, next))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := h.pins.prune(); err != nil { // the lock is written all the same
		h.logger.Warn("old copies of plugins were not removed", "error", err)
	}
	return written, nil
}

// pluginsOr returns the plugins that are named, each once, or those of all providers.
func (h *Host) pluginsOr(plugins []string) []string {
	if len(plugins) == 0 {
		for _, p := range h.providers {
			if p.config.InProcess == nil {
				plugins = append(plugins, p.plugin)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(plugins)))
}

// release tells what stands in the plugin folders of a plugin, and keeps a copy.
func (h *Host) release(ctx context.Context, plugin string) (lock.Release, *copies.Copy, error) {
	fail := func(err error) (lock.Release, *copies.Copy, error) { return lock.Release{}, nil, err }
	found, err := catalog.Find(plugin, h.pins.dirs)
	if err == nil {
		err = h.pins.trust(found)
	}
	if err != nil {
		return fail(err)
	}
	// As it lies there, with all that lies beside it: which files it needs is not
	// known before.
	described, err := h.describe(ctx, plugin, func() (catalog.Binary, error) { return found, nil })
	if err != nil {
		return fail(err)
	}
	if err := validateCompanions(plugin, described.Companions); err != nil {
		return fail(&workspace.PluginError{Provider: plugin, Op: "describe", Reason: err.Error()})
	}
	release, err := h.pins.standing(found, described.Companions)
	if err != nil {
		return fail(err)
	}
	for _, name := range slices.Sorted(slices.Values(described.Companions)) {
		if release.Companions[name] == "" {
			release.Missing = append(release.Missing, name)
		}
	}
	kept, err := h.pins.hold(found, release, true)
	if err != nil {
		return fail(fmt.Errorf("locking: %w", err))
	}
	pinned := h.pins.pinned(found, lock.Entry{Release: release}, true)
	described, err = h.describe(ctx, plugin, func() (catalog.Binary, error) { return pinned, nil })
	if err != nil {
		kept.Release()
		return fail(fmt.Errorf("locking: its copy, with no file beside it but the companions that it names, is not what it is in its folder: %w", err))
	}
	release.Version, release.Protocol = described.Version, described.Protocol
	return release, kept, nil
}

// validateCompanions refuses names that would lead elsewhere than beside a plugin.
func validateCompanions(plugin string, names []string) error {
	for _, name := range names {
		if err := lock.ValidateCompanion(name); err != nil {
			return err
		}
		if name == catalog.BinaryName(plugin) {
			return fmt.Errorf("companion %q is the plugin itself: %w", name, workspace.ErrInvalid)
		}
	}
	return nil
}

// LockDifference is how a plugin differs from what the lock file says.
type LockDifference struct {
	Plugin string `json:"plugin"`
	What   string `json:"what"`
}

// CheckLock tells how the plugins that are named, or those of all providers and all
// that are locked, differ from [Config.Lock]. It starts nothing.
func (h *Host) CheckLock(plugins ...string) ([]LockDifference, error) {
	if h.pins.lock == nil {
		return nil, errNoLock
	}
	f, err := h.pins.lock.read()
	if err != nil {
		return nil, err
	}
	if len(plugins) == 0 {
		plugins = append(h.pluginsOr(nil), slices.Collect(maps.Keys(f.Plugins))...)
	}
	var list []LockDifference
	for _, plugin := range h.pluginsOr(plugins) {
		for _, what := range h.checkLock(f, plugin) {
			list = append(list, LockDifference{Plugin: plugin, What: what})
		}
	}
	return list, nil
}

func (h *Host) checkLock(f lock.File, plugin string) []string {
	locked, ok := f.Plugins[plugin]
	if !ok {
		return []string{"is not locked: anything may run"}
	}
	entry, ok := locked.Platforms[platform]
	if !ok {
		return []string{"is not locked for " + platform}
	}
	found, err := catalog.Find(plugin, h.pins.dirs)
	if err == nil {
		err = h.pins.trust(found)
	}
	var standing lock.Release
	if err == nil {
		standing, err = h.pins.standing(found, slices.Collect(maps.Keys(entry.Companions)))
	}
	var what []string
	if entry.RolledBackFrom != "" {
		what = append(what, fmt.Sprintf("is rolled back to version %s (sha256:%s) from sha256:%s", entry.Version, entry.SHA256, entry.RolledBackFrom))
	}
	if err != nil {
		return append(what, err.Error())
	}
	what = append(what, differences(found, entry.Release, standing)...)
	if entry.RolledBackFrom != "" {
		return what // what lies there is another release's
	}
	return append(what, h.pins.appeared(found, entry.Missing)...)
}

// RollbackPlugin has a plugin run what was locked before what stands in the plugin
// folder: the release that is locked, if another one stands there, or else the one
// that was locked before it. It is run from its copy until [Host.LockPlugins] goes
// forward again; running providers follow with [Host.Reload].
func (h *Host) RollbackPlugin(plugin string) (LockedPlugin, error) {
	fail := func(err error) (LockedPlugin, error) {
		return LockedPlugin{}, fmt.Errorf("rollback of plugin %s: %w", plugin, err)
	}
	if h.pins.lock == nil {
		return fail(errNoLock)
	}
	if entry, err := h.pins.lock.entry(plugin); err != nil {
		return fail(err)
	} else if entry == nil {
		return fail(fmt.Errorf("%s does not lock it: \"berth lock %s\" does", h.pins.lock.path, plugin))
	}
	var result LockedPlugin
	err := lock.Update(h.pins.lock.path, func(f *lock.File) error {
		before, ok := f.Plugins[plugin].Platforms[platform]
		if !ok {
			return errors.New("it was unlocked meanwhile")
		}
		var standing lock.Release
		found, err := catalog.Find(plugin, h.pins.dirs)
		if err == nil {
			standing, err = h.pins.standing(found, slices.Collect(maps.Keys(before.Companions)))
		}
		if err != nil { // nothing that could be run stands there
			standing, found = lock.Release{}, catalog.At(plugin, "")
		}
		next, err := before.Back(standing)
		switch {
		case errors.Is(err, lock.ErrRolledBack):
			return fmt.Errorf("%w to version %s (sha256:%s): \"berth lock %s\" goes forward to what stands in the plugin folder", err, before.Version, before.SHA256, plugin)
		case err != nil:
			return fmt.Errorf("from version %s (sha256:%s): %w", before.Version, before.SHA256, err)
		}
		kept, err := h.pins.hold(found, next.Release, false)
		if err != nil {
			return err
		}
		kept.Release()
		f.Plugins[plugin].Platforms[platform] = next
		result = lockedPlugin(plugin, before, next)
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return result, nil
}
