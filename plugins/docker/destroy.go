package docker

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
)

// Destroy removes a workspace's container with its volume (contract L6).
func (p *provider) Destroy(ctx context.Context, id string) error {
	if own := p.config.ContainerName; own != "" && id != own {
		return p.notConfigured("workspace", id)
	}
	c, found, err := p.findWorkspace(ctx, id)
	if err != nil {
		return err
	}
	if found {
		if err := p.mayUse(c, id); err != nil {
			return err
		}
		if err := p.remove(ctx, c.ID); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("destroying workspace %s: %w", id, err)
		}
	}
	p.sweep(ctx)
	return nil
}
