package host

import (
	"errors"
	"io/fs"

	"github.com/berth-dev/berth/host/internal/catalog"
)

// PluginSearch tells how a provider's plugin is found.
type PluginSearch struct {
	// Folders are looked in, in order.
	Folders []PluginFolder `json:"folders"`
	// Path and Digest are of the binary that a start would take now; of what is
	// locked, and was rolled back, the digest is that of its copy.
	Path   string `json:"path,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Error is why a start would take none.
	Error string `json:"error,omitempty"`
	// Lock is the lock file, if there is one, Locked says that it names this plugin,
	// and RolledBackFrom is what the operator went back from.
	Lock           string `json:"lock,omitempty"`
	Locked         bool   `json:"locked,omitempty"`
	RolledBackFrom string `json:"rolled_back_from,omitempty"`
}

// PluginFolder is one folder.
type PluginFolder struct {
	Dir string `json:"dir"`
	// Path is the plugin's binary there, if one is.
	Path string `json:"path,omitempty"`
	// Reason is why that is passed over: it cannot be executed.
	Reason string `json:"reason,omitempty"`
}

// Search tells where a provider's plugin is looked for, and what a start would take
// now. It starts nothing. A provider that is served in this process has no folders.
func (h *Host) Search(provider string) (PluginSearch, error) {
	p, err := h.provider(provider)
	if err != nil || p.config.InProcess != nil {
		return PluginSearch{}, err
	}
	var s PluginSearch
	for _, place := range catalog.Look(p.plugin, h.pins.dirs) {
		f := PluginFolder{Dir: place.Dir}
		if !errors.Is(place.Err, fs.ErrNotExist) {
			f.Path = place.Path
			if place.Err != nil {
				f.Reason = place.Err.Error()
			}
		}
		s.Folders = append(s.Folders, f)
	}
	if l := h.pins.lock; l != nil {
		if entry, err := l.entry(p.plugin); err != nil || entry != nil {
			s.Lock, s.Locked = l.path, entry != nil
		}
	}
	bin, err := p.find()
	if err == nil {
		s.Path = bin.Path
		s.Digest, err = bin.Digest()
		if pin, ok := bin.Pin(); ok {
			s.RolledBackFrom = pin.RolledBackFrom
		}
	}
	if err != nil {
		s.Error = err.Error()
	}
	return s, nil
}
