// Package settings reads KEY=VALUE pairs of a command line: labels, and keys of
// a provider's configuration.
package settings

import (
	"fmt"
	"math"
	"strings"

	"github.com/goccy/go-yaml"
)

// Labels reads KEY=VALUE pairs. What a key may be is for the host to say.
func Labels(pairs []string) (map[string]string, error) {
	labels := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: want KEY=VALUE, as in team=blue", pair)
		}
		labels[key] = value
	}
	return labels, nil
}

// Config reads KEY=VALUE pairs into configuration, a later one over an earlier
// one. Dots in a key lead into maps; env.NAME is a variable, and its value text.
// Any other value is read as it would be in the configuration file: 2 is a
// number, true a boolean, "2" a string, [a, b] a list, {a: 1} a map, and whatever
// else a string.
func Config(pairs []string) (config map[string]any, err error) {
	config = map[string]any{}
	for _, pair := range pairs {
		key, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%q: want KEY=VALUE, as in image=python:3.12-slim", key)
		}
		path := strings.Split(key, ".")
		var value any = text
		if strings.HasPrefix(key, envPrefix) {
			// Variables are text, and their names may hold dots.
			path = strings.SplitN(key, ".", 2)
		} else if value, err = parseValue(text); err != nil {
			return nil, fmt.Errorf("%s: its value is not valid YAML: close the quotes or brackets that it begins with, or quote it as a whole", key)
		}
		if err := set(config, path, value); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// envPrefix leads to every provider's key for the environment of commands.
const envPrefix = "env."

// set puts value where the path leads.
func set(config map[string]any, path []string, value any) error {
	key := strings.Join(path, ".")
	for i, part := range path {
		if part == "" {
			return fmt.Errorf("key %q: a name is missing: want KEY=VALUE or KEY.KEY=VALUE", key)
		}
		if i == len(path)-1 {
			config[part] = value
			return nil
		}
		next, ok := config[part].(map[string]any)
		if !ok {
			if _, taken := config[part]; taken {
				return fmt.Errorf("key %q: %s is set to a plain value before", key, strings.Join(path[:i+1], "."))
			}
			next = map[string]any{}
			config[part] = next
		}
		config = next
	}
	return nil
}

// parseValue never repeats the text in its error, which may be a secret.
func parseValue(text string) (any, error) {
	if text == "" {
		return "", nil
	}
	var value any
	err := yaml.Unmarshal([]byte(text), &value)
	if strings.ContainsAny(text[:1], `[{"'`) {
		return value, err
	}
	if strings.Contains(text, "#") {
		return text, nil // a comment to YAML, a part of the value here
	}
	switch v := value.(type) { // nil where it is no YAML, and so plain text
	case bool, int, int64, uint64:
		return v, nil
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, nil
		}
	}
	return text, nil
}
