package host

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const testSchema = `{
  "type": "object", "additionalProperties": false, "required": ["image"],
  "properties": {
    "image": {"type": "string", "minLength": 1, "x-berth-per-workspace": true},
    "root": {"type": "string", "x-berth-path": true},
    "mounts": {"type": "array", "items": {"$ref": "#/$defs/mount"}},
    "cpus": {"type": "number", "minimum": 0.5},
    "pull": {"enum": ["always", "never"]},
    "api_key": {"type": "string", "pattern": "^key-[a-z]+$", "writeOnly": true},
    "memory": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+[kmg]?$"}], "examples": ["512m"]},
    "pin": {"type": "integer", "writeOnly": true},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "x-berth-per-workspace": true}
  },
  "$defs": {"mount": {"type": "object", "properties": {"source": {"type": "string", "x-berth-path": true}, "target": {"type": "string"}}}}
}`

func compiled(t *testing.T) *schema {
	t.Helper()
	s, err := compileSchema([]byte(testSchema))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConfigurationResolvesItsPaths(t *testing.T) {
	home, err := filepath.Abs(resolvePath("/", "~"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := compiled(t).configuration(map[string]any{
		"image": "./not-a-path", "root": "data", "mounts": []any{map[string]any{"source": "~/src", "target": "t"}, map[string]any{"source": "/abs"}},
	}, "/etc/berth")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want = map[string]any{
		"image": "./not-a-path", "root": "/etc/berth/data",
		"mounts": []any{map[string]any{"source": home + "/src", "target": "t"}, map[string]any{"source": "/abs"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", text)
	}
}

// TestB7_SchemaErrorsNameTheKeyAndNeverAValue also for values whose schema does
// not call them secrets.
func TestB7_SchemaErrorsNameTheKeyAndNeverAValue(t *testing.T) {
	const secret = "hunter2hunter2"
	for name, test := range map[string]struct {
		change map[string]any
		key    string
		want   string
	}{
		"missing":              {map[string]any{"image": nil}, "image", "want string, not null"},
		"unknown":              {map[string]any{"imgae": secret}, "imgae", "did you mean image?"},
		"wrong type":           {map[string]any{"cpus": secret}, "cpus", "want number, not string"},
		"too little":           {map[string]any{"cpus": 0.25}, "cpus", "want at least 1/2"},
		"not one of":           {map[string]any{"pull": secret}, "pull", "want one of always, never"},
		"too short":            {map[string]any{"image": ""}, "image", "want at least 1 characters"},
		"secret of wrong form": {map[string]any{"api_key": secret}, "api_key", "want what matches ^key-[a-z]+$"},
		"secret of wrong type": {map[string]any{"pin": secret}, "pin", "want integer, not string"},
		"env of wrong type":    {map[string]any{"env": map[string]any{"TOKEN": 1234567}}, "env.TOKEN", "want string, not number"},
		"env as a list":        {map[string]any{"env": []any{secret}}, "env", "want object, not array"},
		"below a list":         {map[string]any{"mounts": []any{map[string]any{}, map[string]any{"source": true}}}, "mounts.1.source", "want string, not boolean"},
		"not UTF-8":            {map[string]any{"api_key": secret + "\xff"}, "api_key", "is not UTF-8"},
		"alternatives, a text": {map[string]any{"memory": secret}, "memory", "want such as 512m"},
		"alternatives, number": {map[string]any{"memory": -1}, "memory", "want at least 0"},
		"neither of them":      {map[string]any{"memory": true}, "memory", "want integer, not boolean"},
		"no JSON":              {map[string]any{"root": make(chan int)}, "", "holds what JSON cannot say"},
	} {
		t.Run(name, func(t *testing.T) {
			config := map[string]any{"image": "x"}
			for k, v := range test.change {
				config[k] = v
			}
			_, err := compiled(t).configuration(config, "/")
			var fault *ConfigError
			if !errors.As(err, &fault) || fault.Key != test.key || !strings.Contains(fault.Reason, test.want) {
				t.Fatalf("%v, want %s: %s", err, test.key, test.want)
			}
			for _, leak := range []string{secret, "1234567", "0.25"} {
				if strings.Contains(err.Error(), leak) {
					t.Errorf("repeats a value: %v", err)
				}
			}
		})
	}
	_, err := compiled(t).configuration(nil, "/")
	var fault *ConfigError
	if !errors.As(err, &fault) || fault.Key != "image" || fault.Reason != "is missing" {
		t.Error(err)
	}
}

func TestConfigurationErrorsTellTheLine(t *testing.T) {
	config, err := parseConfig("berth.yaml", "/", []byte("providers:\n  a:\n    config:\n      image: x\n      mounts:\n      - source: true\n"), lookup(nil))
	if err != nil {
		t.Fatal(err)
	}
	p := config.Providers["a"]
	_, err = compiled(t).configuration(p.Config, "/")
	if got := p.explain("providers.a.config", err).Error(); got != "berth.yaml:6: providers.a.config.mounts.0.source: want string, not boolean" {
		t.Error(got)
	}
	delete(p.Config, "image")
	delete(p.Config, "mounts")
	_, err = compiled(t).configuration(p.Config, "/")
	if got := p.explain("providers.a.config", err).Error(); got != "berth.yaml:3: providers.a.config.image: is missing" && !strings.Contains(got, "berth.yaml:4: providers.a.config.image") {
		t.Error(got)
	}
}

func TestSchemaMayReferToNothingElse(t *testing.T) {
	for _, text := range []string{`{"$ref": "file:///etc/hostname"}`, `{"$ref": "https://example.com/x"}`, `[]`, `{`, `{"type": 7}`} {
		if _, err := compileSchema([]byte(text)); err == nil {
			t.Errorf("%s compiles", text)
		}
	}
	if s, err := compileSchema(nil); err != nil {
		t.Error(err)
	} else if _, err := s.configuration(map[string]any{"a": 1}, "/"); err == nil {
		t.Error("a plugin without a schema takes a key")
	}
}

func TestOverrides(t *testing.T) {
	d := &berthv1.DescribeResponse{ConfigSchema: []byte(testSchema)}
	p := &provider{host: &Host{dir: "/"}, name: "a", config: Provider{Config: map[string]any{"image": "base", "cpus": 1}}}
	text, err := p.overrides(d, map[string]any{"image": "other"}, map[string]string{"A": "b"})
	if err != nil || string(text) != `{"image":"other"}` {
		t.Errorf("%s, %v", text, err)
	}
	for name, test := range map[string]struct {
		config map[string]any
		key    string
		want   string
	}{
		"not per workspace": {map[string]any{"cpus": 2}, "cpus", "cannot be set for one workspace; can be: env, image"},
		"unknown":           {map[string]any{"imag": "x"}, "imag", "did you mean image?"},
		"wrong type":        {map[string]any{"image": 7}, "image", "want string, not number"},
	} {
		_, err := p.overrides(d, test.config, nil)
		var fault *ConfigError
		if !errors.As(err, &fault) || !errors.Is(err, workspace.ErrInvalid) || fault.Key != test.key || !strings.Contains(fault.Reason, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := p.overrides(&berthv1.DescribeResponse{}, nil, nil); text != nil || err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

func TestSecretsAreFound(t *testing.T) {
	got := compiled(t).secrets(map[string]any{"image": "x", "api_key": "key-a", "env": map[string]string{"A": "value"}})
	slices.Sort(got)
	if !slices.Equal(got, []string{"key-a", "value"}) {
		t.Errorf("%q", got)
	}
}

func TestConventionalVariablesGoToWhatWasInstalledWithThisProgram(t *testing.T) {
	yes, no := true, false
	beside, elsewhere := filepath.Join(executableDir(), "berth-provider-x"), filepath.Join(t.TempDir(), "berth-provider-x")
	for _, test := range []struct {
		path string
		set  *bool
		want bool
	}{
		{beside, nil, true}, {beside, &no, false}, {elsewhere, nil, false}, {elsewhere, &yes, true}, {"", nil, false},
	} {
		p := &provider{config: Provider{ConventionalEnv: test.set}}
		if got := p.conventional(catalog.Binary{Path: test.path}); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

func TestExecEnvironmentIsAnAllowlist(t *testing.T) {
	t.Setenv("BERTH_TEST_SECRET", "s3cret")
	t.Setenv("LC_TIME", "C")
	t.Setenv("WANTED", "yes")
	env, err := execEnvironment([]string{"WANTED"})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(env, func(e string) bool { return strings.Contains(e, "s3cret") }) || !slices.Contains(env, "LC_TIME=C") || !slices.Contains(env, "WANTED=yes") {
		t.Errorf("%q", env)
	}
	for _, bad := range []string{"", "A=B", "A*"} {
		if _, err := execEnvironment([]string{bad}); err == nil {
			t.Errorf("%q is inherited", bad)
		}
	}
}

func TestConventionalEnvironment(t *testing.T) {
	t.Setenv("ACME_HOST", "h")
	t.Setenv("ACME_TOKEN", "t")
	t.Setenv("OTHER", "o")
	t.Setenv("BERTH_TEST_SECRET", "s3cret")
	for _, test := range []struct {
		patterns []string
		want     map[string]string
	}{
		{[]string{"ACME_HOST"}, map[string]string{"ACME_HOST": "h"}},
		{[]string{"ACME_*"}, map[string]string{"ACME_HOST": "h", "ACME_TOKEN": "t"}},
		{[]string{"*", "", "NOT_SET", "BERTH_*"}, map[string]string{}},
	} {
		if got := conventionalEnvironment(test.patterns); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: %q", test.patterns, got)
		}
	}
}
