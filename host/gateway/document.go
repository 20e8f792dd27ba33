package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// describeAPI writes the OpenAPI document, when all operations are there. Huma's
// own shapes of errors are taken out, for nothing is answered in them.
func (g *Gateway) describeAPI() ([]byte, error) {
	registered := g.api.OpenAPI().Components.Schemas.Map()
	delete(registered, "ErrorModel")
	delete(registered, "ErrorDetail")
	text, err := json.Marshal(g.api.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("gateway: writing the OpenAPI document: %w", err)
	}
	document := make(object)
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("gateway: writing the OpenAPI document: %w", err)
	}
	schemas := document.at("components", "schemas")
	paths := document.at("paths")
	for path := range paths {
		for method := range paths.at(path) {
			body := paths.at(path, method, "requestBody", "content", jsonType, "schema")
			if name := refName(body); name != "" {
				allowNull(schemas.at(name))
			}
		}
	}
	g.describeSessions(schemas)
	return json.Marshal(document)
}

// describeSessions says of requests what is not for the validation, whose answer
// would be another than clients know: that is the sessions' manager's.
func (g *Gateway) describeSessions(schemas object) {
	aliases := []any{nil}
	for _, alias := range g.config.aliases() {
		aliases = append(aliases, alias)
	}
	create := schemas.at("CreateSession")
	create.at("properties", "runtime")["enum"] = aliases
	schemas.at("PolicyUpdate", "properties", "default_runtime")["enum"] = aliases
	create["if"] = object{"properties": object{"attach": object{"const": true}}, "required": []string{"attach"}}
	create["then"] = object{"properties": object{"session_id": object{"type": "string"}}, "required": []string{"session_id"}}
}

// allowNull says of a request's keys that need not be there that they may as well
// be null.
func allowNull(schema object) {
	required, _ := schema["required"].([]any)
	properties := schema.at("properties")
	for name := range properties {
		property := properties.at(name)
		if kind, ok := property["type"].(string); ok && !slices.Contains(required, any(name)) {
			property["type"] = []string{kind, "null"}
		}
	}
}

// object is one of JSON.
type object map[string]any

// at is an object within another, empty where there is none.
func (o object) at(keys ...string) object {
	for _, key := range keys {
		switch next := o[key].(type) {
		case map[string]any:
			o = next
		case object:
			o = next
		default:
			return object{}
		}
	}
	return o
}

// refName is the name of the schema that one refers to.
func refName(schema object) string {
	ref, _ := schema["$ref"].(string)
	_, name, _ := strings.Cut(ref, "/schemas/")
	return name
}
