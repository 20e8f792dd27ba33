package sdk

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
)

// The annotations of a configuration schema that are ours; a secret is the
// standard writeOnly.
const (
	perWorkspaceAnnotation = "x-berth-per-workspace"
	pathAnnotation         = "x-berth-path"
)

// envKey is the configuration key whose values are every command's environment
// (contract C9).
const envKey = "env"

// Schema returns the JSON Schema (draft 2020-12) of the configuration struct C,
// as hosts validate it. Keys are optional unless tagged jsonschema:"required",
// and no others than the struct's are allowed. An error is a mistake in C.
func Schema[C any]() ([]byte, error) {
	s, err := reflectSchema(reflect.TypeFor[C]())
	if err != nil {
		return nil, err
	}
	return s.text, nil
}

// configSchema is what is known of a configuration struct.
type configSchema struct {
	root   *jsonschema.Schema
	text   []byte
	fields map[string]configField // by top-level key
}

// configField is one top-level key.
type configField struct {
	index        []int // as in reflect.Value.FieldByIndex
	perWorkspace bool
}

func reflectSchema(t reflect.Type) (*configSchema, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("configuration: %v is not a struct", t)
	}
	if err := checkConfigType(t, nil); err != nil {
		return nil, err
	}
	reflector := jsonschema.Reflector{
		Anonymous:                  true, // an $id would promise that it can be fetched
		DoNotReference:             true, // hosts look for annotations at the property itself
		ExpandedStruct:             true,
		RequiredFromJSONSchemaTags: true,
		// By default a type goes by its bare name, and two packages' Configs are one.
		Namer: typeName,
	}
	root := reflector.ReflectFromType(t)
	s := &configSchema{root: root, fields: map[string]configField{}}
	if err := annotate(root, t, nil, s.fields); err != nil {
		return nil, err
	}
	text, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("configuration: schema of %v: %w", t, err)
	}
	s.text = text
	return s, nil
}

// typeName is empty for a type without a name, which stands where it is used.
func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return t.PkgPath() + "." + t.Name()
}

// checkConfigType refuses what cannot be a configuration, before the reflector
// recurses into it without end.
func checkConfigType(t reflect.Type, above []reflect.Type) error {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return checkConfigType(t.Elem(), above)
	case reflect.Struct:
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer, reflect.Uintptr:
		return fmt.Errorf("configuration: a value of %v cannot be configured", t)
	default:
		return nil
	}
	if slices.Contains(above, t) {
		return fmt.Errorf("configuration: %v contains itself", t)
	}
	above = append(slices.Clone(above), t)
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Pointer {
			return fmt.Errorf("configuration: %v embeds the pointer %s: embed the struct", t, f.Name)
		}
		if jsonKey(f) == "" && !f.Anonymous {
			continue
		}
		if err := checkConfigType(f.Type, above); err != nil {
			return err
		}
	}
	return nil
}

// jsonKey is the name of a field in JSON, or empty if it has none.
func jsonKey(f reflect.StructField) string {
	tag, tagged := f.Tag.Lookup("json")
	name, _, _ := strings.Cut(tag, ",")
	switch {
	case name == "-", !f.IsExported():
		return ""
	case name != "":
		return name
	case f.Anonymous && f.Type.Kind() == reflect.Struct:
		return "" // its fields are the outer struct's
	case tagged && name == "", !tagged:
		return f.Name
	}
	return ""
}

// annotate puts what the berth tags of t say into its schema, and collects the
// top-level fields.
func annotate(s *jsonschema.Schema, t reflect.Type, index []int, fields map[string]configField) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		if s.Items != nil {
			return annotate(s.Items, t.Elem(), nil, nil)
		}
		return nil
	case reflect.Map:
		if s.AdditionalProperties != nil {
			return annotate(s.AdditionalProperties, t.Elem(), nil, nil)
		}
		return nil
	case reflect.Struct:
	default:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clone(index), i)
		key := jsonKey(f)
		if key == "" {
			if f.Anonymous && f.Type.Kind() == reflect.Struct {
				if err := annotate(s, f.Type, at, fields); err != nil {
					return err
				}
			}
			continue
		}
		if s.Properties == nil { // a type with a schema of its own
			continue
		}
		property, ok := s.Properties.Get(key)
		if !ok {
			continue
		}
		field := configField{index: at}
		for tag := range strings.SplitSeq(f.Tag.Get("berth"), ",") {
			switch strings.TrimSpace(tag) {
			case "":
			case "secret":
				property.WriteOnly = true
			case "path":
				setExtra(property, pathAnnotation)
			case "per_workspace":
				if fields == nil {
					return fmt.Errorf("configuration: key %s of %v: only top-level keys can be per_workspace", key, t)
				}
				field.perWorkspace = true
				setExtra(property, perWorkspaceAnnotation)
			default:
				return fmt.Errorf("configuration: key %s of %v: unknown berth tag %q", key, t, tag)
			}
		}
		if fields != nil {
			fields[key] = field
			if key == envKey {
				if f.Type != reflect.TypeFor[map[string]string]() {
					return fmt.Errorf("configuration: key %s is %v, want map[string]string", envKey, f.Type)
				}
				property.WriteOnly = true
				property.AdditionalProperties.WriteOnly = true
			}
		}
		if err := annotate(property, f.Type, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

func setExtra(s *jsonschema.Schema, name string) {
	if s.Extras == nil {
		s.Extras = map[string]any{}
	}
	s.Extras[name] = true
}
