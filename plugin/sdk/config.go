package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/berth-dev/berth/shared/workspace"
)

// Override returns base with the per-workspace keys of overrides, a JSON object
// or nothing, in place of its own: what [CreateRequest.Overrides] is for. It is
// as strict as the configuration itself, and refuses keys that are not tagged
// per_workspace. The error wraps [workspace.ErrInvalid], names the key, and
// never repeats a value.
func Override[C any](base C, overrides json.RawMessage) (C, error) {
	if len(bytes.TrimSpace(overrides)) == 0 {
		return base, nil
	}
	var zero C
	schema, err := reflectSchema(reflect.TypeFor[C]())
	if err != nil {
		return zero, err
	}
	keys, err := schema.check(overrides, false)
	if err != nil {
		return zero, err
	}
	changed := base
	for _, key := range keys {
		field := schema.fields[key]
		if !field.perWorkspace {
			return zero, fmt.Errorf("config key %s cannot be set for one workspace: %w", key, workspace.ErrInvalid)
		}
		// Emptied, so that decoding makes new maps, slices and pointers instead of
		// writing into those that base has.
		reflect.ValueOf(&changed).Elem().FieldByIndex(field.index).SetZero()
	}
	if err := decodeStrict(overrides, &changed); err != nil {
		return zero, err
	}
	return changed, nil
}

// decodeConfig reads a whole configuration.
func decodeConfig[C any](schema *configSchema, raw json.RawMessage) (C, error) {
	var config, zero C
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if _, err := schema.check(raw, true); err != nil {
		return zero, err
	}
	if err := decodeStrict(raw, &config); err != nil {
		return zero, err
	}
	return config, nil
}

// check finds unknown and missing keys, which encoding/json takes in other
// letter case or leaves be. It returns the top-level keys, sorted.
func (s *configSchema) check(raw json.RawMessage, whole bool) ([]string, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, invalidJSON(err)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("config: want a JSON object: %w", workspace.ErrInvalid)
	}
	if err := checkKeys(s.root, object, "", whole); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(object)), nil
}

func checkKeys(s *jsonschema.Schema, value any, at string, whole bool) error {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			var property *jsonschema.Schema
			if s.Properties != nil {
				property, _ = s.Properties.Get(key)
			}
			if property == nil && s.AdditionalProperties == jsonschema.FalseSchema {
				return fmt.Errorf("config key %s is unknown%s: %w", at+key, known(s), workspace.ErrInvalid)
			}
			if property == nil {
				property = s.AdditionalProperties
			}
			if property == nil {
				continue
			}
			if err := checkKeys(property, value[key], at+key+".", true); err != nil {
				return err
			}
		}
		if whole {
			for _, key := range s.Required {
				if _, ok := value[key]; !ok {
					return fmt.Errorf("config key %s is missing: %w", at+key, workspace.ErrInvalid)
				}
			}
		}
	case []any:
		if s.Items == nil {
			return nil
		}
		for i, item := range value {
			if err := checkKeys(s.Items, item, fmt.Sprintf("%s%d.", at, i), true); err != nil {
				return err
			}
		}
	}
	return nil
}

// known lists what there is, for those who mistyped it.
func known(s *jsonschema.Schema) string {
	if s.Properties == nil || s.Properties.Len() == 0 {
		return ""
	}
	var keys []string
	for pair := s.Properties.Oldest(); pair != nil; pair = pair.Next() {
		keys = append(keys, pair.Key)
	}
	slices.Sort(keys)
	return " (known: " + strings.Join(keys, ", ") + ")"
}

func decodeStrict(raw json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrongType):
		// Value is a kind, but for numbers the number too.
		kind, _, _ := strings.Cut(wrongType.Value, " ")
		return fmt.Errorf("config key %s: a %s, want %s: %w", wrongType.Field, kind, jsonKind(wrongType.Type), workspace.ErrInvalid)
	case errors.As(err, &syntax):
		return invalidJSON(err)
	}
	return fmt.Errorf("config: %w (%w)", err, workspace.ErrInvalid)
}

// invalidJSON tells where, but not what: that may be part of a secret.
func invalidJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("config: not JSON at byte %d: %w", syntax.Offset, workspace.ErrInvalid)
	}
	return fmt.Errorf("config: not JSON: %w", workspace.ErrInvalid)
}

// jsonKind names a Go type as someone who writes JSON or YAML would.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonKind(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number (%v)", t.Kind())
	default:
		return t.String()
	}
}

// secrets collects the strings and numbers of raw that the schema marks as
// secret, longest first.
func (s *configSchema) secrets(raw json.RawMessage) []string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	var found []string
	collectSecrets(s.root, value, false, &found)
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(found)
}

func collectSecrets(s *jsonschema.Schema, value any, secret bool, found *[]string) {
	if s != nil {
		secret = secret || s.WriteOnly
	}
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			var property *jsonschema.Schema
			if s != nil {
				property = s.AdditionalProperties
				if s.Properties != nil {
					if p, ok := s.Properties.Get(key); ok {
						property = p
					}
				}
			}
			collectSecrets(property, member, secret, found)
		}
	case []any:
		var items *jsonschema.Schema
		if s != nil {
			items = s.Items
		}
		for _, item := range value {
			collectSecrets(items, item, secret, found)
		}
	case string:
		if secret {
			*found = append(*found, value)
		}
	case json.Number:
		if secret {
			*found = append(*found, value.String())
		}
	}
}
