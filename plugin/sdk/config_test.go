package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestSchemaSaysWhatIsSpecial(t *testing.T) {
	text, err := Schema[testConfig]()
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Schema               string `json:"$schema"`
		Type                 string
		AdditionalProperties any
		Required             []string
		Properties           map[string]map[string]any
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.Schema != "https://json-schema.org/draft/2020-12/schema" || schema.Type != "object" || schema.AdditionalProperties != false || schema.Required != nil {
		t.Errorf("schema %s", text)
	}
	for key, want := range map[string]map[string]any{
		"image": {"type": "string", "description": "What to run", "x-berth-per-workspace": true},
		"root":  {"type": "string", "x-berth-path": true},
		"token": {"type": "string", "writeOnly": true},
		"tags":  {"type": "array", "items": map[string]any{"type": "string"}, "x-berth-per-workspace": true},
		"nested": {
			"type": "object", "additionalProperties": false,
			"properties": map[string]any{"password": map[string]any{"type": "string", "writeOnly": true}, "level": map[string]any{"type": "integer"}},
		},
		"env": {
			"type": "object", "writeOnly": true, "x-berth-per-workspace": true,
			"additionalProperties": map[string]any{"type": "string", "writeOnly": true},
		},
	} {
		if got := schema.Properties[key]; !reflect.DeepEqual(got, want) {
			t.Errorf("key %s is %v, want %v", key, got, want)
		}
	}
}

// What the host validates with must take it, and agree with our own decoding.
func TestSchemaAndDecodingAgree(t *testing.T) {
	text, err := Schema[testConfig]()
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
	validator, err := compiler.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := reflectSchema(reflect.TypeFor[testConfig]())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ config, names string }{
		{config: `{}`},
		{config: `{"image":"a","memory":5,"tags":["x"],"nested":{"level":1},"env":{"A":"b"}}`},
		{config: `{"imagee":"a"}`, names: "imagee"},
		{config: `{"Image":"a"}`, names: "Image"}, // encoding/json alone would take it
		{config: `{"image":5}`, names: "image"},
		{config: `{"memory":"5"}`, names: "memory"},
		{config: `{"memory":1.5}`, names: "memory"},
		{config: `{"tags":"x"}`, names: "tags"},
		{config: `{"tags":[1]}`, names: "tags"},
		{config: `{"nested":{"levels":1}}`, names: "nested.levels"},
		{config: `{"nested":{"level":"high"}}`, names: "nested.level"},
		{config: `{"nested":[]}`, names: "nested"},
		{config: `{"env":{"A":5}}`, names: "env"},
		{config: `[]`, names: "object"},
		{config: `"x"`, names: "object"},
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(test.config))
		if err != nil {
			t.Fatal(err)
		}
		if err := validator.Validate(value); (err == nil) != (test.names == "") {
			t.Errorf("%s: the schema says %v", test.config, err)
		}
		_, err = decodeConfig[testConfig](schema, json.RawMessage(test.config))
		if test.names == "" {
			if err != nil {
				t.Errorf("%s: %v", test.config, err)
			}
			continue
		}
		if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s: error %v, want one that names %s", test.config, err, test.names)
		}
	}
}

func TestRequiredKeys(t *testing.T) {
	type config struct {
		Image string `json:"image" jsonschema:"required"`
	}
	schema, err := reflectSchema(reflect.TypeFor[config]())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(schema.text), `"required":["image"]`) {
		t.Errorf("schema %s", schema.text)
	}
	if _, err := decodeConfig[config](schema, nil); !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "image") {
		t.Errorf("error %v", err)
	}
}

type recursive struct {
	Next *recursive `json:"next"`
}

type common struct {
	Shared string `json:"shared" berth:"per_workspace"`
}

func TestSchemaOfEmbeddedStruct(t *testing.T) {
	type config struct {
		common
		Own string `json:"own"`
	}
	schema, err := reflectSchema(reflect.TypeFor[config]())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Override(config{common: common{"a"}, Own: "b"}, json.RawMessage(`{"shared":"c"}`))
	if err != nil || got.Shared != "c" || got.Own != "b" || len(schema.fields) != 2 {
		t.Errorf("got %+v, error %v, fields %v", got, err, schema.fields)
	}
}

func TestSchemaRefusesMistakes(t *testing.T) {
	for name, schema := range map[string]func() ([]byte, error){
		"not a struct": Schema[map[string]string],
		"recursive":    Schema[recursive],
		"channel":      Schema[struct{ C chan int }],
		"unknown tag": Schema[struct {
			A string `berth:"secrte"`
		}],
		"wrong env": Schema[struct {
			Env []string `json:"env"`
		}],
		"nested per ws": Schema[struct {
			N struct {
				A string `berth:"per_workspace"`
			}
		}],
		"embedded ptr": Schema[struct{ *common }],
	} {
		if text, err := schema(); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
	client := connect(t, Plugin[recursive]{Name: "fake"})
	if _, err := client.Describe(t.Context(), &berthv1.DescribeRequest{}); err == nil || !strings.Contains(fromCall(err).Error(), "contains itself") {
		t.Errorf("describe: %v", err)
	}
}

func TestOverride(t *testing.T) {
	base := testConfig{Image: "a", Memory: 1, Tags: []string{"x", "y"}, Token: "t", Env: map[string]string{"A": "1"}}
	got, err := Override(base, json.RawMessage(`{"image":"b","tags":["z"],"env":{"B":"2"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := testConfig{Image: "b", Memory: 1, Tags: []string{"z"}, Token: "t", Env: map[string]string{"B": "2"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if base.Image != "a" || fmt.Sprint(base.Tags) != "[x y]" || fmt.Sprint(base.Env) != "map[A:1]" {
		t.Errorf("base became %+v", base)
	}
	for _, none := range []string{"", " ", "{}"} {
		if got, err := Override(base, json.RawMessage(none)); err != nil || !reflect.DeepEqual(got, base) {
			t.Errorf("%q: %+v, %v", none, got, err)
		}
	}
	for _, test := range []struct{ overrides, names string }{
		{`{"token":"s3cret-value"}`, "config key token cannot be set for one workspace"},
		{`{"nested":{"password":"s3cret-value"}}`, "nested"},
		{`{"imag":"s3cret-value"}`, "config key imag is unknown (known: env, image, memory"},
		{`{"memory":"s3cret-value"}`, "config key memory: a string, want a whole number"},
		{`{"memory":31415.9}`, "config key memory: a number, want a whole number"},
		{`{"env":{"A":31415}}`, "config key env"},
		{`["s3cret-value"]`, "want a JSON object"},
		{`{"image": s3cret-value}`, "not JSON at byte 11"},
		{`{"image": "s3cret-value`, "not JSON"},
	} {
		_, err := Override(base, json.RawMessage(test.overrides))
		if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s: error %v, want %q", test.overrides, err, test.names)
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "31415")) {
			t.Errorf("%s: the error tells a value: %v", test.overrides, err)
		}
	}
}

func TestConfigureOnce(t *testing.T) {
	fails := true
	p := pluginOf(providing(newMemory()))
	makes := p.New
	var given testConfig
	var env Env
	p.New = func(ctx context.Context, c testConfig, e Env) (Provider, error) {
		if fails {
			return nil, fmt.Errorf("reaching https://user:%s@service: %w", c.Token, workspace.ErrTransient)
		}
		given, env = c, e
		return makes(ctx, c, e)
	}
	client := connect(t, p)
	if _, err := client.Stat(t.Context(), &berthv1.StatRequest{Workspace: key("ws"), Path: []byte("a")}); err == nil || !strings.Contains(err.Error(), "FailedPrecondition") {
		t.Errorf("stat before configure: %v", err)
	}
	request := func(config string) *berthv1.ConfigureRequest {
		return &berthv1.ConfigureRequest{Provider: "my-provider", Config: []byte(config), DataDir: []byte("/data/\xff")}
	}
	const good = `{"image":"x","token":"s3cret-value"}`
	_, err := client.Configure(t.Context(), request(good))
	mustBe(t, fromCall(err), workspace.ErrTransient)
	if text := fromCall(err).Error(); !strings.Contains(text, "https://user:[redacted]@service") {
		t.Errorf("error %q", text)
	}
	fails = false
	for _, bad := range []*berthv1.ConfigureRequest{request(`{"image":1}`), request(`{"x":1}`), request(`{`), request(`{"env":{"":"x"}}`), {Provider: "No!"}} {
		_, err := client.Configure(t.Context(), bad)
		mustBe(t, fromCall(err), workspace.ErrInvalid)
	}
	answer, err := client.Configure(t.Context(), request(good))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(answer.GetFeatures()) != "[list]" || answer.GetEphemeral() || len(answer.GetDeviations()) > 0 {
		t.Errorf("answer %v", answer)
	}
	if given.Image != "x" || given.Token != "s3cret-value" || env.Provider != "my-provider" || env.DataDir != "/data/\xff" || env.Logger == nil {
		t.Errorf("New got %+v, %+v", given, env)
	}
	_, err = client.Configure(t.Context(), request(good))
	mustBe(t, fromCall(err), workspace.ErrInvalid)
}

type peculiar struct{ *fakeProvider }

func (peculiar) Ephemeral() bool { return true }
func (peculiar) Deviations() []Deviation {
	return []Deviation{{Rule: "L3", Reason: "its workspaces die \xff with it"}}
}
func (peculiar) Announce() []workspace.Feature { return []workspace.Feature{workspace.FeatureLabels} }

func TestConfigureTellsThePeculiarities(t *testing.T) {
	client := connect(t, pluginOf(peculiar{providing(newMemory())}))
	answer, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(answer.GetFeatures()) != "[labels list]" || !answer.GetEphemeral() ||
		len(answer.GetDeviations()) != 1 || answer.GetDeviations()[0].GetReason() != "its workspaces die \uFFFD with it" {
		t.Errorf("answer %v", answer)
	}
}

func TestNewThatMisbehaves(t *testing.T) {
	for name, makes := range map[string]func(context.Context, testConfig, Env) (Provider, error){
		"nothing":   func(context.Context, testConfig, Env) (Provider, error) { return nil, nil },
		"typed nil": func(context.Context, testConfig, Env) (Provider, error) { return (*fakeProvider)(nil), nil },
		"panic":     func(_ context.Context, c testConfig, _ Env) (Provider, error) { panic("token " + c.Token) },
	} {
		p := quiet(pluginOf(nil))
		p.New = makes
		_, err := connect(t, p).Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p", Config: []byte(`{"token":"s3cret-value"}`)})
		if err == nil || strings.Contains(fromCall(err).Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// everything is a workspace type with all features.
type everything struct {
	*runner
	*memory
	Renamer
	Linker
	Chmoder
	Chtimer
}

func (everything) ID() string                      { return "ws" }
func (everything) Incarnation() string             { return "one" }
func (everything) WorkingDir() string              { return "/work" }
func (w everything) Announce() []workspace.Feature { return w.features }

func TestFeaturesAreDiscovered(t *testing.T) {
	all := everything{runner: &runner{features: []workspace.Feature{workspace.FeatureShell, workspace.FeatureAppend, workspace.FeatureAttachRun}}}
	for _, test := range []struct {
		name      string
		workspace Workspace
		features  string
	}{
		{"nothing", nil, "[]"},
		{"bare", (*bare)(nil), "[]"},
		{"files", (*memory)(nil), "[files]"},
		{"commands, typed nil", (*runner)(nil), "[commands]"},
		{"commands", &runner{features: []workspace.Feature{workspace.FeatureShell}}, "[commands shell]"},
		{"all", all, "[append chmod chtimes commands files rename shell symlink]"},
	} {
		p := pluginOf(nil)
		p.Workspace = test.workspace
		answer, err := connect(t, p).Describe(t.Context(), &berthv1.DescribeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(answer.GetFeatures()); got != test.features {
			t.Errorf("%s: features %s, want %s", test.name, got, test.features)
		}
	}
}
