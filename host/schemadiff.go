package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// SchemaChange is a key of a plugin's configuration that is not as it was.
type SchemaChange struct {
	// Key is the path below config; * stands for any key of a map, or item of a list.
	Key string `json:"key"`
	// Kind is "added", "removed" or "changed".
	Kind string `json:"kind"`
	// Aspects are the keywords of its schema that differ, such as "type", "default"
	// or "required"; of a key that is added or removed those that it has.
	Aspects []AspectChange `json:"aspects,omitempty"`
}

// The kinds of a [SchemaChange].
const (
	KeyAdded   = "added"
	KeyRemoved = "removed"
	KeyChanged = "changed"
)

// AspectChange is a keyword of a schema whose value differs. One that is not there
// is empty.
type AspectChange struct {
	Name string          `json:"name"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// structural are the keywords that lead to other keys, or are for people alone.
var structural = map[string]bool{
	"properties": true, "required": true, "items": true, "$ref": true, "$defs": true, "definitions": true,
	"$schema": true, "$id": true, "$comment": true, "title": true, "description": true, "examples": true,
}

const (
	// maxKeys and maxKeyDepth bound what a schema that leads to itself costs.
	maxKeys     = 4096
	maxKeyDepth = 12
)

// aspects are what a schema says of one key, by keyword.
type aspects map[string]json.RawMessage

// keys flattens a schema.
func (s *schema) keys() map[string]aspects {
	found := make(map[string]aspects)
	s.addKeys(found, "", s.root, 0)
	return found
}

func (s *schema) addKeys(found map[string]aspects, path string, node map[string]any, depth int) {
	node = s.deref(node, 0)
	if depth > maxKeyDepth {
		return
	}
	required, _ := node["required"].([]any)
	add := func(key string, below map[string]any, isRequired bool) {
		if len(found) >= maxKeys {
			return
		}
		at := join(path, key)
		of := make(aspects)
		for keyword, value := range s.deref(below, 0) {
			if _, isSchema := value.(map[string]any); structural[keyword] || keyword == "additionalProperties" && isSchema {
				continue
			}
			if text, err := json.Marshal(value); err == nil {
				of[keyword] = text
			}
		}
		if isRequired {
			of["required"] = json.RawMessage("true")
		}
		found[at] = of
		s.addKeys(found, at, below, depth+1)
	}
	properties, _ := node["properties"].(map[string]any)
	for _, key := range sortedKeys(properties) {
		if below, ok := properties[key].(map[string]any); ok {
			add(key, below, slices.Contains(required, any(key)))
		}
	}
	for _, keyword := range []string{"additionalProperties", "items"} {
		if below, ok := node[keyword].(map[string]any); ok {
			add("*", below, false)
		}
	}
}

// schemaChanges compares two schemas key by key.
func schemaChanges(before, after *schema) []SchemaChange {
	was, is := before.keys(), after.keys()
	all := maps.Clone(was)
	maps.Copy(all, is)
	var list []SchemaChange
	for _, key := range sortedKeys(all) {
		old, wasThere := was[key]
		now, isThere := is[key]
		change := SchemaChange{Key: key, Kind: KeyChanged, Aspects: aspectChanges(old, now)}
		switch {
		case !wasThere:
			change.Kind = KeyAdded
		case !isThere:
			change.Kind = KeyRemoved
		case len(change.Aspects) == 0:
			continue
		}
		list = append(list, change)
	}
	return list
}

func aspectChanges(before, after aspects) []AspectChange {
	all := maps.Clone(before)
	if all == nil {
		all = make(aspects)
	}
	maps.Copy(all, after)
	var list []AspectChange
	for _, name := range sortedKeys(all) {
		if !bytes.Equal(before[name], after[name]) {
			list = append(list, AspectChange{Name: name, Old: before[name], New: after[name]})
		}
	}
	return list
}

// faults tells everything of a configuration that the schema does not allow. Keys
// begin below config.
func (s *schema) faults(config map[string]any) []*ConfigError {
	if config == nil {
		config = map[string]any{}
	}
	doc, err := toJSON(config)
	if err == nil {
		err = s.compiled.Validate(doc)
	}
	var invalid *jsonschema.ValidationError
	var fault *ConfigError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fault):
		return []*ConfigError{fault}
	case !errors.As(err, &invalid):
		return []*ConfigError{{Reason: "does not fit the plugin's schema"}}
	}
	var list []*ConfigError
	said := make(map[string]bool)
	for _, leaf := range leaves(invalid) {
		fault := s.explain(leaf)
		if text := fmt.Sprintf("%s\x00%s", fault.Key, fault.Reason); !said[text] {
			said[text] = true
			list = append(list, fault)
		}
	}
	return list
}

// leaves are the single things that are wrong.
func leaves(err *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if other := nearest(err); other != nil {
		return leaves(other)
	}
	switch k := err.ErrorKind.(type) {
	case *kind.OneOf, *kind.AnyOf: // which of them was meant is not known
		return []*jsonschema.ValidationError{err}
	case *kind.Required:
		return split(err, k.Missing, func(name string) jsonschema.ErrorKind { return &kind.Required{Missing: []string{name}} })
	case *kind.AdditionalProperties:
		return split(err, k.Properties, func(name string) jsonschema.ErrorKind { return &kind.AdditionalProperties{Properties: []string{name}} })
	}
	if len(err.Causes) == 0 {
		return []*jsonschema.ValidationError{err}
	}
	var list []*jsonschema.ValidationError
	for _, cause := range err.Causes {
		list = append(list, leaves(cause)...)
	}
	return list
}

// split makes an error about several names one about each.
func split(err *jsonschema.ValidationError, names []string, of func(name string) jsonschema.ErrorKind) []*jsonschema.ValidationError {
	var list []*jsonschema.ValidationError
	for _, name := range slices.Sorted(slices.Values(names)) {
		one := *err
		one.ErrorKind = of(name)
		list = append(list, &one)
	}
	return list
}
