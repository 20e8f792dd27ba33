package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/host"
)

// overrideChecker is a host that knows what its providers let one workspace override:
// a *host.Host.
type overrideChecker interface {
	Check(ctx context.Context, provider string) (host.ProviderStatus, error)
	CheckOverrides(ctx context.Context, provider string, config map[string]any) error
}

// CheckRuntimes holds what runtimes override against their providers' schemas, for
// which the plugins of those that override something are started. Its errors are
// [*host.ConfigError] values where the runtimes are from a file. Of a plugin that
// cannot be started nothing is known, which is no error, but in the log.
func (g *Gateway) CheckRuntimes(ctx context.Context) error {
	checker, ok := g.config.Host.(overrideChecker)
	if !ok {
		return nil
	}
	var wrong []error
	for _, alias := range g.config.aliases() {
		runtime := g.config.Runtimes[alias]
		if len(runtime.Config) == 0 {
			continue
		}
		if _, err := checker.Check(ctx, runtime.Provider); err != nil {
			g.logger.Warn("what a runtime overrides could not be checked: its plugin does not start", "runtime", alias, "provider", runtime.Provider, "error", err)
			continue
		}
		if err := checker.CheckOverrides(ctx, runtime.Provider, runtime.Config); err != nil {
			wrong = append(wrong, runtime.fault(alias, err))
		}
	}
	return errors.Join(wrong...)
}

// fault tells where an override is that is wrong.
func (r Runtime) fault(alias string, err error) error {
	var config *host.ConfigError
	if !errors.As(err, &config) || !r.section.Exists() {
		return fmt.Errorf("gateway: runtime %s: %w", alias, err)
	}
	top, _, _ := strings.Cut(config.Key, ".")
	top, _, _ = strings.Cut(top, "[")
	at, reason := r.section, config.Key+": "+config.Reason
	walk := r.section.Each(func(key string, value host.Section) error {
		if key == top {
			at = value
			if key == config.Key {
				reason = config.Reason
			}
		}
		return nil
	})
	return errors.Join(walk, at.Fault(reason))
}
