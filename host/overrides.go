package host

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// splitOverrides takes env, which the handle keeps, from what goes into the
// create. The error wraps [workspace.ErrInvalid] and repeats no value.
func splitOverrides(config map[string]any) (overrides map[string]any, env map[string]string, err error) {
	overrides = maps.Clone(config)
	given, ok := overrides[envKey]
	if !ok {
		return overrides, nil, nil
	}
	delete(overrides, envKey)
	switch v := given.(type) {
	case map[string]string:
		env = maps.Clone(v)
	case map[string]any:
		env = make(map[string]string, len(v))
		for _, name := range sortedKeys(v) {
			text, ok := v[name].(string)
			if !ok {
				return nil, nil, fmt.Errorf("config key env.%s: want a string, not %T: %w", shorten(name), v[name], workspace.ErrInvalid)
			}
			env[name] = text
		}
	case nil:
	default:
		return nil, nil, fmt.Errorf("config key env: want a map of strings, not %T: %w", given, workspace.ErrInvalid)
	}
	if err := workspace.ValidateEnv(env); err != nil {
		return nil, nil, fmt.Errorf("config key env: %w", err)
	}
	return overrides, env, nil
}

// overrides checks what one workspace overrides against the plugin's schema, and
// writes it as JSON.
func (p *provider) overrides(d *berthv1.DescribeResponse, config map[string]any, env map[string]string) ([]byte, error) {
	if len(config) == 0 && env == nil {
		return nil, nil
	}
	s, err := compileSchema(d.GetConfigSchema())
	if err != nil {
		return nil, &workspace.PluginError{Provider: p.name, Op: "create", Reason: err.Error()}
	}
	keys := sortedKeys(config)
	if env != nil {
		keys = append(keys, envKey)
	}
	properties, _ := s.at(nil)["properties"].(map[string]any)
	for _, key := range keys {
		property, ok := properties[key].(map[string]any)
		switch {
		case !ok:
			return nil, &ConfigError{Key: key, Reason: unknownKey(key, s.perWorkspaceKeys())}
		case s.deref(property, 0)[annotationPerWorkspace] != true && property[annotationPerWorkspace] != true:
			return nil, &ConfigError{Key: key, Reason: "cannot be set for one workspace; can be: " + strings.Join(s.perWorkspaceKeys(), ", ")}
		}
	}
	if len(config) == 0 {
		return nil, nil
	}
	merged := maps.Clone(p.config.Config)
	if merged == nil {
		merged = make(map[string]any, len(config))
	}
	maps.Copy(merged, config)
	doc, err := toJSON(merged)
	if err != nil {
		return nil, err
	}
	if err := s.validate(doc); err != nil {
		return nil, err
	}
	own, err := toJSON(config)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s.resolvePaths(s.root, own, p.host.dir, 0))
}

func (s *schema) perWorkspaceKeys() []string {
	properties, _ := s.at(nil)["properties"].(map[string]any)
	var keys []string
	for _, key := range sortedKeys(properties) {
		property, _ := properties[key].(map[string]any)
		if property[annotationPerWorkspace] == true || s.deref(property, 0)[annotationPerWorkspace] == true {
			keys = append(keys, key)
		}
	}
	return keys
}

// CheckOverrides says whether a workspace of the provider may be opened with a
// configuration of its own, as by [workspace.WithConfig]. It starts the provider's
// plugin, if that does not run, and creates nothing. What is wrong is a [*ConfigError],
// whose key is one of config, or wraps [workspace.ErrInvalid].
func (h *Host) CheckOverrides(ctx context.Context, provider string, config map[string]any) error {
	p, err := h.provider(provider)
	if err != nil {
		return err
	}
	overrides, env, err := splitOverrides(config)
	if err != nil {
		return err
	}
	inst, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	defer inst.Release()
	_, err = p.overrides(inst.Describe(), overrides, env)
	return err
}
