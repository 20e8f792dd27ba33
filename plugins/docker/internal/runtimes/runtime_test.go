package runtimes

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestParse(t *testing.T) {
	r, err := Parse(json.RawMessage(` {"name":"ml","base_image":"python:3.12-slim","packages":["numpy"],"env_vars":{"A":"1"},"run_as_uid":1000,"image":null} `))
	if err != nil {
		t.Fatal(err)
	}
	if r.Name != "ml" || r.WorkDir != "/workspace" || r.PackageManager != Pip || r.RunAsUID != 1000 || r.Env["A"] != "1" || r.Image != "" {
		t.Errorf("parsed %+v", r)
	}
	r, err = Parse(json.RawMessage(`"go"`))
	if err != nil || r.Name != "go" || r.WorkDir != "/src" || r.Image == "" {
		t.Errorf("parsed %+v, %v", r, err)
	}
}

func TestBuiltinsAreValid(t *testing.T) {
	want := []string{
		"bun", "coding", "deno", "go", "node-minimal", "node-react", "node-typescript", "polyglot", "python-analytics", "python-datascience",
		"python-documents", "python-minimal", "python-scraping", "python-web", "rust",
	}
	if got := strings.Join(Names(), " "); got != strings.Join(want, " ") {
		t.Errorf("names %s, want %s", got, want)
	}
	for name, r := range builtins() {
		// As a user would write it: a ready-made image has no package manager.
		if err := r.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r.Name != name || r.Description == "" || r.WorkDir == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// wrong is what must be refused, the key that the error names, and a part of
// what it says.
var wrong = []struct{ raw, key, says string }{
	{`"python-datasience"`, "runtime", "python-datascience"},
	{`17`, "runtime", "name of a built-in"},
	{``, "runtime", "name of a built-in"},
	{`null`, "runtime", "no built-in"},
	{`{"name":`, "runtime", "not JSON"},
	{`{"base_image":"a"}`, "runtime.name", "missing"},
	{`{"name":"a b","base_image":"a"}`, "runtime.name", "letters"},
	{`{"name":"-a","base_image":"a"}`, "runtime.name", "letters"},
	{`{"name":"a\nUSER 0","base_image":"a"}`, "runtime.name", "letters"},
	{`{"name":"` + strings.Repeat("a", 64) + `","base_image":"a"}`, "runtime.name", "63"},
	{`{"name":"a"}`, "runtime", "image"},
	{`{"name":"a","image":"a","base_image":"b"}`, "runtime", "not both"},
	{`{"name":"a","image":"a","packages":["b"]}`, "runtime.packages", "base_image"},
	{`{"name":"a","image":"a","setup_commands":["b"]}`, "runtime.setup_commands", "base_image"},
	{`{"name":"a","image":"a","run_as_uid":7}`, "runtime.run_as_uid", "base_image"},
	{`{"name":"a","image":"a","package_manager":"pip"}`, "runtime.package_manager", "base_image"},
	{`{"name":"a","base_image":"scratch"}`, "runtime.base_image", "empty"},
	{`{"name":"a","base_image":"A B"}`, "runtime.base_image", "reference"},
	{`{"name":"a","base_image":"a\nRUN evil"}`, "runtime.base_image", "reference"},
	{`{"name":"a","base_image":"$X"}`, "runtime.base_image", "reference"},
	{`{"name":"a","image":"a:b:c"}`, "runtime.image", "reference"},
	{`{"name":"a","base_image":"a","pakages":[]}`, "runtime.pakages", "known: base_image"},
	{`{"name":"a","base_image":"a","Packages":[]}`, "runtime.Packages", "unknown"},
	{`{"name":"a","base_image":"a","packages":"numpy"}`, "runtime.packages", "want a list of strings"},
	{`{"name":"a","base_image":"a","packages":["ok","--index-url"]}`, "runtime.packages.1", "no name of a package"},
	{`{"name":"a","base_image":"a","packages":["a b"]}`, "runtime.packages.0", "no name of a package"},
	{`{"name":"a","base_image":"a","packages":["a;b"]}`, "runtime.packages.0", "no name of a package"},
	{`{"name":"a","base_image":"a","packages":["a'b"]}`, "runtime.packages.0", "no name of a package"},
	{`{"name":"a","base_image":"a","packages":["a\n"]}`, "runtime.packages.0", "no name of a package"},
	{`{"name":"a","base_image":"a","packages":["$(id)"]}`, "runtime.packages.0", "no name of a package"},
	{`{"name":"a","base_image":"a","packages":[""]}`, "runtime.packages.0", "no name of a package"},
	{`{"name":"a","base_image":"a","package_manager":"dnf"}`, "runtime.package_manager", "pip, npm, apt, cargo"},
	{`{"name":"a","base_image":"a","setup_commands":[" "]}`, "runtime.setup_commands.0", "empty"},
	{`{"name":"a","base_image":"a","setup_commands":["true","a\u0000b"]}`, "runtime.setup_commands.1", "NUL"},
	{`{"name":"a","base_image":"a","setup_commands":["` + strings.Repeat("x", 61<<10) + `"]}`, "runtime.setup_commands.0", "too many"},
	{`{"name":"a","base_image":"a","env_vars":{"":"x"}}`, "runtime.env_vars", "empty"},
	{`{"name":"a","base_image":"a","env_vars":{"A=B":"x"}}`, "runtime.env_vars", "="},
	{`{"name":"a","base_image":"a","env_vars":{"A":7}}`, "runtime.env_vars", "want an object of strings"},
	{`{"name":"a","base_image":"a","env_vars":{"A":"hunter2\u0000"}}`, "runtime.env_vars.A", "NUL"},
	{`{"name":"a","base_image":"a","work_dir":"src"}`, "runtime.work_dir", "absolute"},
	{`{"name":"a","base_image":"a","work_dir":"/"}`, "runtime.work_dir", "below /"},
	{`{"name":"a","base_image":"a","work_dir":"/a/../b"}`, "runtime.work_dir", ".."},
	{`{"name":"a","base_image":"a","work_dir":"/a/"}`, "runtime.work_dir", "absolute"},
	{`{"name":"a","base_image":"a","work_dir":"/a b"}`, "runtime.work_dir", "absolute"},
	{`{"name":"a","base_image":"a","work_dir":"/$HOME"}`, "runtime.work_dir", "absolute"},
	{`{"name":"a","base_image":"a","work_dir":"/a\nUSER 0"}`, "runtime.work_dir", "absolute"},
	{`{"name":"a","base_image":"a","work_dir":"/proc/x"}`, "runtime.work_dir", "kernel"},
	{`{"name":"a","base_image":"a","run_as_uid":0}`, "runtime.run_as_uid", "root"},
	{`{"name":"a","base_image":"a","run_as_uid":-1}`, "runtime.run_as_uid", "unprivileged"},
	{`{"name":"a","base_image":"a","run_as_uid":65534}`, "runtime.run_as_uid", "65533"},
	{`{"name":"a","base_image":"a","run_as_uid":1.5}`, "runtime.run_as_uid", "whole number"},
	{`{"name":"a","base_image":"a","run_as_uid":"1000"}`, "runtime.run_as_uid", "want a whole number"},
}

func TestParseRefuses(t *testing.T) {
	for _, test := range wrong {
		_, err := Parse(json.RawMessage(test.raw))
		if !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%.80s: %v, want ErrInvalid", test.raw, err)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, "config key "+test.key+": ") || !strings.Contains(text, test.says) {
			t.Errorf("%.80s: %q does not name %s and say %q", test.raw, text, test.key, test.says)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.80s: %q repeats a secret", test.raw, err)
		}
	}
}

// providerConfig is a provider's configuration with the key.
type providerConfig struct {
	Runtime Config `json:"runtime,omitempty" berth:"per_workspace"`
}

func TestConfigInASchema(t *testing.T) {
	text, err := sdk.Schema[providerConfig]()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("config.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	for raw, ok := range map[string]bool{
		`{}`:                 true,
		`{"runtime":"go"}`:   true,
		`{"runtime":"gone"}`: false,
		`{"runtime":7}`:      false,
		`{"runtime":{}}`:     false,
		`{"runtime":{"name":"a","base_image":"b","packages":["c"],"run_as_uid":1000}}`: true,
		`{"runtime":{"name":"a","base_image":"b","pakages":["c"]}}`:                    false,
		`{"runtime":{"name":"a","base_image":"b","run_as_uid":0}}`:                     false,
		`{"runtime":{"name":"a","base_image":"b","package_manager":"dnf"}}`:            false,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != ok {
			t.Errorf("the schema takes %s: %v, want %v", raw, err, ok)
		}
	}

	// As the SDK decodes it, one workspace's own in place of the provider's.
	base, err := sdk.Override(providerConfig{}, json.RawMessage(`{"runtime":{"name":"a","base_image":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	over, err := sdk.Override(base, json.RawMessage(`{"runtime":"rust"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		config providerConfig
		name   string
	}{{base, "a"}, {over, "rust"}} {
		if r, err := test.config.Runtime.Parse(); err != nil || r.Name != test.name || !test.config.Runtime.Given() {
			t.Errorf("runtime %+v, %v; want %s", r, err, test.name)
		}
	}
	if (providerConfig{}).Runtime.Given() {
		t.Error("a runtime is given where none is")
	}
	if _, err := sdk.Override(providerConfig{}, json.RawMessage(`{"runtime":{"name":"a","bas_image":"b"}}`)); err == nil || !strings.Contains(err.Error(), "runtime.bas_image") {
		t.Errorf("an unknown key: %v", err)
	}
}
