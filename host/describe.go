package host

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/workspace"
)

// PluginDescription is what a plugin tells of itself.
type PluginDescription struct {
	// Name and Version are its own words.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Protocol is the version of berth.v1's handshake that it and this host agree on.
	Protocol int `json:"protocol"`
	// Path is the binary, Digest that of its bytes.
	Path   string `json:"path"`
	Digest string `json:"digest"`
	// Features are what its workspaces may have.
	Features []string `json:"features,omitempty"`
	// Environment lists the variables that it reads by convention, Companions the
	// files that it finds beside itself.
	Environment []string `json:"environment,omitempty"`
	Companions  []string `json:"companions,omitempty"`
	// Schema is the JSON Schema of its configuration.
	Schema json.RawMessage `json:"schema"`
}

// DescribePlugin starts a plugin, by its name, to describe it, and ends it.
func (h *Host) DescribePlugin(ctx context.Context, plugin string) (PluginDescription, error) {
	if err := workspace.ValidateName(plugin); err != nil {
		return PluginDescription{}, fmt.Errorf("plugin %w", err)
	}
	return h.describe(ctx, plugin, func() (catalog.Binary, error) { return h.pins.find(plugin) })
}

// Schema returns the JSON Schema of the configuration of a plugin, by the
// plugin's name. It starts one for that and ends it.
func (h *Host) Schema(ctx context.Context, plugin string) ([]byte, error) {
	d, err := h.DescribePlugin(ctx, plugin)
	return d.Schema, err
}

func (h *Host) describe(ctx context.Context, plugin string, find func() (catalog.Binary, error)) (PluginDescription, error) {
	if err := h.begin(); err != nil {
		return PluginDescription{}, err
	}
	defer h.tasks.Done()
	env, err := execEnvironment(nil)
	if err != nil {
		return PluginDescription{}, err
	}
	s := supervisor.New(supervisor.Config{
		Provider: plugin, Find: find,
		Dir: h.dir, Env: env, Logger: h.logger, HostVersion: hostVersion(),
	})
	d, err := describeWith(ctx, s)
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeDrain)
	defer cancel()
	if err := s.Shutdown(shutdown); err != nil {
		return PluginDescription{}, fmt.Errorf("plugin %s: ending it: %w", plugin, err)
	}
	if err != nil {
		return PluginDescription{}, err
	}
	if _, err := compileSchema(d.Schema); err != nil {
		return PluginDescription{}, &workspace.PluginError{Provider: plugin, Op: "describe", Reason: err.Error()}
	}
	return d, nil
}

func describeWith(ctx context.Context, s *supervisor.Supervisor) (PluginDescription, error) {
	inst, err := s.Acquire(ctx)
	if err != nil {
		return PluginDescription{}, err
	}
	defer inst.Release()
	told := inst.Describe()
	d := PluginDescription{
		Name: told.GetName(), Version: told.GetVersion(), Protocol: s.Status().Protocol,
		Path:     inst.Binary().Path,
		Features: told.GetFeatures(), Environment: told.GetEnvironment(), Companions: told.GetCompanions(),
		Schema: told.GetConfigSchema(),
	}
	d.Digest, err = inst.Binary().Digest()
	return d, err
}
