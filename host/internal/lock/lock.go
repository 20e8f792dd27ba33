// Package lock is berth.lock: which bytes of each plugin may run, by their digest.
// [Read] reads it strictly, [Update] changes it; what a change is is said by
// [Entry.Forward] and [Entry.Back].
package lock

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/berth-dev/berth/shared/workspace"
)

// FileName is what a lock file is called, beside its berth.yaml.
const FileName = "berth.lock"

// format is the version of the file's format.
const format = 1

// File is a lock file.
type File struct {
	// Plugins are the locked ones, by their names. Others run as they are found.
	Plugins map[string]Plugin `yaml:"plugins"`
	// Format comes last in what is written: a file that was cut off has none, and so
	// does not unlock what it has lost.
	Format int `yaml:"format"`
}

// Plugin is a locked plugin.
type Plugin struct {
	// Platforms are the systems that it may run on, such as linux/amd64.
	Platforms map[string]Entry `yaml:"platforms"`
}

// Entry is what may run on one platform.
type Entry struct {
	Release `yaml:",inline"`
	// RolledBackFrom is the digest that stood in the plugin folder when the
	// operator went back to this release. While it is set, this release is run
	// whatever stands there.
	RolledBackFrom string `yaml:"rolled_back_from,omitempty"`
	// Previous is what was locked before, to go back to.
	Previous *Release `yaml:"previous,omitempty"`
}

// Release is one build of a plugin.
type Release struct {
	// Version and Protocol are what the plugin told, for people.
	Version  string `yaml:"version"`
	Protocol int    `yaml:"protocol"`
	// SHA256 is the hex digest of the binary.
	SHA256 string `yaml:"sha256"`
	// Companions are the digests of the files that it finds beside itself.
	Companions map[string]string `yaml:"companions,omitempty"`
	// Missing are those that it names and which did not lie there.
	Missing []string `yaml:"missing,omitempty"`
}

// SameBytes says whether two releases are the same, whatever they call themselves.
func (r Release) SameBytes(other Release) bool {
	return r.SHA256 == other.SHA256 && maps.Equal(r.Companions, other.Companions)
}

// Forward is the entry after r was locked: what ran until then can be gone back to.
func (e Entry) Forward(r Release) Entry {
	next := Entry{Release: r, Previous: e.Previous}
	if e.SHA256 != "" && !e.SameBytes(r) {
		before := e.Release
		next.Previous = &before
	}
	return next
}

var (
	// ErrRolledBack is a rollback of what has been rolled back.
	ErrRolledBack = errors.New("it is rolled back already")
	// ErrNoPrevious is a rollback where only one release was ever locked.
	ErrNoPrevious = errors.New("no other release of it was ever locked")
)

// Back is the entry after a rollback from what stands in the plugin folder, whose
// digests found has: to what is locked, if that is something else, and to what was
// locked before, if it is that. A zero found is nothing.
func (e Entry) Back(found Release) (Entry, error) {
	switch {
	case e.RolledBackFrom != "":
		return e, ErrRolledBack
	case found.SHA256 != "" && !e.SameBytes(found):
		e.RolledBackFrom = found.SHA256
		return e, nil
	case e.Previous == nil:
		return e, ErrNoPrevious
	}
	return Entry{Release: *e.Previous, RolledBackFrom: e.SHA256}, nil
}

// Releases are those that the entry needs kept.
func (e Entry) Releases() []Release {
	if e.Previous == nil {
		return []Release{e.Release}
	}
	return []Release{e.Release, *e.Previous}
}

// maxCompanions is more files than any plugin looks for.
const maxCompanions = 256

// ValidateCompanion returns why a file beside a plugin cannot be called so.
func ValidateCompanion(name string) error {
	if name == "" || len(name) > 255 || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\:\x00") || filepath.Base(name) != name {
		return fmt.Errorf("companion %q: want the plain name of a file: %w", name, workspace.ErrInvalid)
	}
	return nil
}

var (
	hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)
	platform  = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9]+$`)
)

func (f File) validate() error {
	switch f.Format {
	case format:
	case 0:
		return errors.New("format: is missing, the last line of a whole file")
	default:
		return fmt.Errorf("format: is %d, and this Berth reads %d", f.Format, format)
	}
	for name, plugin := range f.Plugins {
		at := "plugins." + name
		if err := workspace.ValidateName(name); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if len(plugin.Platforms) == 0 {
			return fmt.Errorf("%s.platforms: is missing", at)
		}
		for key, entry := range plugin.Platforms {
			at := at + ".platforms." + key
			if !platform.MatchString(key) {
				return fmt.Errorf("%s: want a platform such as linux/amd64", at)
			}
			if err := entry.validate(at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e Entry) validate(at string) error {
	if err := e.Release.validate(at); err != nil {
		return err
	}
	if e.RolledBackFrom != "" && !hexDigest.MatchString(e.RolledBackFrom) {
		return fmt.Errorf("%s.rolled_back_from: want a sha256 in hex", at)
	}
	if e.Previous != nil {
		return e.Previous.validate(at + ".previous")
	}
	return nil
}

func (r Release) validate(at string) error {
	if !hexDigest.MatchString(r.SHA256) {
		return fmt.Errorf("%s.sha256: want a sha256 in hex", at)
	}
	if len(r.Companions)+len(r.Missing) > maxCompanions {
		return fmt.Errorf("%s.companions: more than %d", at, maxCompanions)
	}
	for name, digest := range r.Companions {
		if err := ValidateCompanion(name); err != nil {
			return fmt.Errorf("%s.companions: %w", at, err)
		}
		if !hexDigest.MatchString(digest) {
			return fmt.Errorf("%s.companions.%s: want a sha256 in hex", at, name)
		}
	}
	for _, name := range r.Missing {
		if err := ValidateCompanion(name); err != nil {
			return fmt.Errorf("%s.missing: %w", at, err)
		}
	}
	return nil
}
