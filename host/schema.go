package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Annotations of a configuration's schema, as berth.v1 lays them down.
const (
	annotationPerWorkspace = "x-berth-per-workspace"
	annotationPath         = "x-berth-path"
	annotationSecret       = "writeOnly"
)

// envKey is the configuration key whose values are every command's environment,
// and secrets (contract B7, C9).
const envKey = "env"

// schema is that of a plugin's configuration.
type schema struct {
	compiled *jsonschema.Schema
	root     map[string]any
}

// compileSchema reads a schema that a plugin describes itself with. None is that
// of an empty configuration.
func compileSchema(text []byte) (*schema, error) {
	if len(text) == 0 {
		text = []byte(`{"type":"object","additionalProperties":false}`)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the plugin's configuration schema is no JSON: %w", err)
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("the plugin's configuration schema is no JSON object")
	}
	const url = "berth:///config.json"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("the plugin's configuration schema: %w", err)
	}
	compiled, err := compiler.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("the plugin's configuration schema: %w", err)
	}
	return &schema{compiled: compiled, root: root}, nil
}

// noLoader keeps a plugin's schema from having the host read files or fetch.
type noLoader struct{}

// Load refuses.
func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a schema may refer to nothing but itself")
}

// configuration checks a provider's configuration, makes its paths absolute and
// writes it as JSON. An error is a *ConfigError whose key begins below config.
func (s *schema) configuration(config map[string]any, dir string) ([]byte, error) {
	if config == nil {
		config = map[string]any{}
	}
	doc, err := toJSON(config)
	if err != nil {
		return nil, err
	}
	if err := s.validate(doc); err != nil {
		return nil, err
	}
	return json.Marshal(s.resolvePaths(s.root, doc, dir, 0))
}

// toJSON turns what a Go program or a file gave into plain JSON values.
func toJSON(config map[string]any) (any, error) {
	for _, key := range sortedKeys(config) {
		if at := invalidUTF8(key, config[key]); at != "" {
			return nil, &ConfigError{Key: at, Reason: "is not UTF-8, which a configuration must be"}
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, &ConfigError{Reason: "holds what JSON cannot say: want strings, numbers, booleans, lists and maps"}
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

// invalidUTF8 returns the path of a string that JSON would garble, or "".
func invalidUTF8(path string, value any) string {
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return path
		}
	case []any:
		for i, e := range v {
			if at := invalidUTF8(fmt.Sprintf("%s.%d", path, i), e); at != "" {
				return at
			}
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if at := invalidUTF8(path+"."+key, v[key]); at != "" {
				return at
			}
		}
	case map[string]string:
		for _, key := range sortedKeys(v) {
			if !utf8.ValidString(v[key]) {
				return path + "." + key
			}
		}
	}
	return ""
}

func (s *schema) validate(doc any) error {
	err := s.compiled.Validate(doc)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return &ConfigError{Reason: "does not fit the plugin's schema"} // its text may repeat a value
	}
	return s.explain(invalid)
}

// nearest is of the alternatives of which a value satisfies none the one whose type
// it has: a text that is wrong as a text is not told that it should be a number.
func nearest(err *jsonschema.ValidationError) *jsonschema.ValidationError {
	switch err.ErrorKind.(type) {
	case *kind.OneOf, *kind.AnyOf:
	default:
		return nil
	}
	for _, cause := range err.Causes {
		wrongType := false
		for e := cause; !wrongType; e = e.Causes[0] {
			if _, ok := e.ErrorKind.(*kind.Type); ok && len(e.InstanceLocation) == len(err.InstanceLocation) {
				wrongType = true
			}
			if len(e.Causes) != 1 {
				break
			}
		}
		if !wrongType {
			return cause
		}
	}
	return nil
}

// explain finds the first thing that is wrong and says it without any value: it
// may be a secret, whatever its schema says (contract B7).
func (s *schema) explain(err *jsonschema.ValidationError) *ConfigError {
	for len(err.Causes) > 0 {
		if other := nearest(err); other != nil {
			err = other
			continue
		}
		err = slices.MinFunc(err.Causes, func(a, b *jsonschema.ValidationError) int {
			return strings.Compare(strings.Join(a.InstanceLocation, "\x00"), strings.Join(b.InstanceLocation, "\x00"))
		})
	}
	key := err.InstanceLocation
	fault := func(reason string) *ConfigError {
		return &ConfigError{Key: strings.Join(key, "."), Reason: reason}
	}
	switch k := err.ErrorKind.(type) {
	case *kind.Type:
		return fault(fmt.Sprintf("want %s, not %s", strings.Join(k.Want, " or "), k.Got))
	case *kind.Required:
		key = append(slices.Clone(key), k.Missing[0])
		return fault("is missing")
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		properties, _ := s.at(key)["properties"].(map[string]any)
		reason := unknownKey(k.Properties[0], slices.Collect(maps.Keys(properties)))
		key = append(slices.Clone(key), k.Properties[0])
		return fault(reason)
	case *kind.FalseSchema:
		return fault("may not be given")
	case *kind.Enum:
		want := make([]string, len(k.Want))
		for i, w := range k.Want {
			want[i] = fmt.Sprint(w)
		}
		return fault("want one of " + strings.Join(want, ", "))
	case *kind.Const:
		return fault(fmt.Sprintf("want %v", k.Want))
	case *kind.Pattern:
		if examples, _ := s.at(key)["examples"].([]any); len(examples) > 0 {
			return fault(fmt.Sprintf("want such as %v: what matches %s", examples[0], k.Want))
		}
		return fault("want what matches " + k.Want)
	case *kind.Format:
		return fault("want the format " + k.Want)
	case *kind.Minimum:
		return fault("want at least " + k.Want.RatString())
	case *kind.Maximum:
		return fault("want at most " + k.Want.RatString())
	case *kind.ExclusiveMinimum:
		return fault("want more than " + k.Want.RatString())
	case *kind.ExclusiveMaximum:
		return fault("want less than " + k.Want.RatString())
	case *kind.MinLength:
		return fault(fmt.Sprintf("want at least %d characters", k.Want))
	case *kind.MaxLength:
		return fault(fmt.Sprintf("want at most %d characters", k.Want))
	case *kind.MinItems:
		return fault(fmt.Sprintf("want at least %d of them", k.Want))
	case *kind.MaxItems:
		return fault(fmt.Sprintf("want at most %d of them", k.Want))
	case *kind.UniqueItems:
		return fault("is there twice in the list")
	}
	return fault("does not satisfy " + strings.Join(err.ErrorKind.KeywordPath(), "/") + " of the plugin's schema")
}

// at returns the schema node of an instance's location, or nil.
func (s *schema) at(location []string) map[string]any {
	node := s.deref(s.root, 0)
	for _, key := range location {
		node = s.deref(s.below(node, key), 0)
	}
	return node
}

func (s *schema) below(node map[string]any, key string) map[string]any {
	if properties, ok := node["properties"].(map[string]any); ok {
		if below, ok := properties[key].(map[string]any); ok {
			return below
		}
	}
	if below, ok := node["additionalProperties"].(map[string]any); ok {
		return below
	}
	below, _ := node["items"].(map[string]any)
	return below
}

// deref follows a reference inside the document.
func (s *schema) deref(node map[string]any, depth int) map[string]any {
	ref, ok := node["$ref"].(string)
	if !ok || depth > maxDepth {
		return node
	}
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return node
	}
	target := any(s.root)
	for part := range strings.SplitSeq(pointer, "/") {
		object, _ := target.(map[string]any)
		target = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	object, ok := target.(map[string]any)
	if !ok {
		return node
	}
	return s.deref(object, depth+1)
}

// visit calls f on every string for which the schema has a node.
func (s *schema) visit(node map[string]any, value any, depth int, f func(node map[string]any, text string) string) any {
	if node == nil || depth > maxDepth {
		return value
	}
	node = s.deref(node, 0)
	switch v := value.(type) {
	case string:
		return f(node, v)
	case []any:
		items, _ := node["items"].(map[string]any)
		for i := range v {
			v[i] = s.visit(items, v[i], depth+1, f)
		}
	case map[string]any:
		for key := range v {
			v[key] = s.visit(s.below(node, key), v[key], depth+1, f)
		}
	}
	return value
}

func (s *schema) resolvePaths(node map[string]any, value any, dir string, depth int) any {
	return s.visit(node, value, depth, func(node map[string]any, text string) string {
		if node[annotationPath] == true && text != "" {
			return resolvePath(dir, text)
		}
		return text
	})
}

// secrets collects the values of a configuration that are never shown: those
// that the schema marks so, and every one of env (contract B7).
func (s *schema) secrets(config map[string]any) []string {
	doc, err := toJSON(config)
	if err != nil {
		return nil
	}
	var found []string
	s.visit(s.root, doc, 0, func(node map[string]any, text string) string {
		if node[annotationSecret] == true {
			found = append(found, text)
		}
		return text
	})
	if object, ok := doc.(map[string]any); ok {
		if env, ok := object[envKey].(map[string]any); ok {
			for _, value := range env {
				if text, ok := value.(string); ok {
					found = append(found, text)
				}
			}
		}
	}
	return found
}
