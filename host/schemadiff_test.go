package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func schemaOf(t *testing.T, text string) *schema {
	t.Helper()
	s, err := compileSchema([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func describeChanges(list []SchemaChange) []string {
	var out []string
	for _, c := range list {
		words := []string{c.Kind, c.Key}
		for _, a := range c.Aspects {
			words = append(words, fmt.Sprintf("%s:%s>%s", a.Name, a.Old, a.New))
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

func TestSchemaChanges(t *testing.T) {
	s := compiled(t)
	if list := schemaChanges(s, compiled(t)); len(list) != 0 {
		t.Errorf("the same schema: %v", describeChanges(list))
	}
	changed := strings.NewReplacer(
		`"required": ["image"]`, `"required": ["image", "cpus"]`,
		`"root": {"type": "string", "x-berth-path": true},`, ``,
		`"pull": {"enum": ["always", "never"]}`, `"pull": {"enum": ["always"], "default": "always", "description": "for people"}`,
		`"pin": {"type": "integer"`, `"platform": {"type": "string"}, "pin": {"type": "string"`,
		`"target": {"type": "string"}`, `"target": {"type": "string", "minLength": 1}`,
	).Replace(testSchema)
	got := describeChanges(schemaChanges(s, schemaOf(t, changed)))
	want := []string{
		"changed cpus required:>true",
		"changed mounts.*.target minLength:>1",
		`changed pin type:"integer">"string"`,
		`added platform type:>"string"`,
		`changed pull default:>"always" enum:["always","never"]>["always"]`,
		`removed root type:"string"> x-berth-path:true>`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A schema that leads to itself costs no more than any other.
func TestSchemaThatLeadsToItself(t *testing.T) {
	const loop = `{"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"type": "string"}}}`
	keys := schemaOf(t, loop).keys()
	if len(keys) == 0 || len(keys) > maxKeys {
		t.Errorf("%d keys", len(keys))
	}
}

func TestFaultsAreAllOfThem(t *testing.T) {
	config := map[string]any{
		"imag": "x", "cpus": 0.1, "pull": "sometimes", "api_key": "s3cret", "memory": "lots", "other": 1,
		"mounts": []any{map[string]any{"source": 1}},
	}
	var got []string
	for _, fault := range compiled(t).faults(config) {
		got = append(got, fault.Key)
		if strings.Contains(fault.Error(), "s3cret") {
			t.Errorf("a value is told: %v", fault)
		}
	}
	slices.Sort(got)
	want := []string{"api_key", "cpus", "imag", "image", "memory", "mounts.0.source", "other", "pull"}
	if !slices.Equal(got, want) {
		t.Errorf("faults of %q, want %q", got, want)
	}
	if faults := compiled(t).faults(map[string]any{"image": "x"}); len(faults) != 0 {
		t.Errorf("%v", faults)
	}
	if faults := compiled(t).faults(nil); len(faults) != 1 || faults[0].Key != "image" {
		t.Errorf("%v", faults)
	}
}
