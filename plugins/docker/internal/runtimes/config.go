package runtimes

import (
	"encoding/json"
	"strconv"

	"github.com/invopop/jsonschema"
)

// Config is the key `runtime` in a configuration struct, as JSON: its schema tells
// the host what may stand there, and which of it is secret.
type Config json.RawMessage

// Given says whether the configuration has the key.
func (c Config) Given() bool { return len(c) > 0 && string(c) != "null" }

// Parse is [Parse] of what was given.
func (c Config) Parse() (Runtime, error) { return Parse(json.RawMessage(c)) }

// UnmarshalJSON keeps the text for Parse.
func (c *Config) UnmarshalJSON(raw []byte) error { return (*json.RawMessage)(c).UnmarshalJSON(raw) }

// MarshalJSON gives the text back.
func (c Config) MarshalJSON() ([]byte, error) { return json.RawMessage(c).MarshalJSON() }

// JSONSchema allows a name or an object.
func (Config) JSONSchema() *jsonschema.Schema {
	text := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: description}
	}
	list := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", Description: description, Items: &jsonschema.Schema{Type: "string"}}
	}
	properties := jsonschema.NewProperties()
	properties.Set(keyName, text("what tells it from other runtimes"))
	properties.Set(keyDescription, text("words for people"))
	properties.Set(keyImage, text("a ready-made image, on which nothing is built"))
	properties.Set(keyBaseImage, text("the image to build on"))
	properties.Set(keyPackages, list("packages to install"))
	properties.Set(keyPackageManager, &jsonschema.Schema{
		Type: "string", Description: "what installs them; pip if left out", Enum: []any{Pip, Npm, Apt, Cargo},
	})
	properties.Set(keySetupCommands, list("shell commands to run as root while building, before the packages are installed"))
	properties.Set(keyEnvVars, &jsonschema.Schema{
		Type: "object", Description: "variables for every command; the build does not see them", WriteOnly: true,
		AdditionalProperties: &jsonschema.Schema{Type: "string", WriteOnly: true},
	})
	properties.Set(keyWorkDir, text("where commands start; "+defaultWorkDir+" if left out"))
	properties.Set(keyRunAsUID, &jsonschema.Schema{
		Type: "integer", Description: "the unprivileged user that commands run as", Minimum: "1", Maximum: json.Number(strconv.Itoa(maxUID)),
	})
	var names []any
	for _, name := range Names() {
		names = append(names, name)
	}
	return &jsonschema.Schema{
		AnyOf: []*jsonschema.Schema{
			{Type: "string", Enum: names},
			{Type: "object", Required: []string{keyName}},
		},
		// Beside anyOf, not in it: hosts look for annotations at the property itself.
		Properties:           properties,
		AdditionalProperties: jsonschema.FalseSchema,
	}
}
