package docker

import (
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
)

var _ sdk.Deviator = (*provider)(nil)

// Deviations are those of containers without a guest, where that is how they are
// configured, or where somebody else's container may not take one.
func (p *provider) Deviations() []sdk.Deviation {
	if p.config.Guest == guestOff || p.config.ContainerName != "" {
		return execpath.Deviations()
	}
	return nil
}
