package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
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
	describeFiles(paths, schemas)
	describeCommands(schemas)
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

// absolutePath is what the protocol's file operations take. Another path is an error
// about a path there, as clients know it, and none of the request's shape.
const absolutePath = `^/[^\x00]*$`

// describeFiles says of paths and of the headers of an upload what is answered in
// another way than by the validation.
func describeFiles(paths, schemas object) {
	schemas.at("PathRequest", "properties", "path")["pattern"] = absolutePath
	for path, header := range map[string]map[string]object{
		"/sessions/{session_id}/files/write":   {"path": {"pattern": absolutePath}},
		"/sessions/{session_id}/files/content": {"If-None-Match": {"enum": []string{"*"}}, "Content-Encoding": {"enum": []string{"identity"}}},
	} {
		for method := range paths.at(path) {
			parameters, _ := paths.at(path, method)["parameters"].([]any)
			for _, p := range parameters {
				parameter := object(p.(map[string]any))
				name, _ := parameter["name"].(string)
				maps.Copy(parameter.at("schema"), header[name])
			}
		}
	}
}

// describeCommands says that a command has a program, or is a script, and not both.
func describeCommands(schemas object) {
	program := object{"prefixItems": []object{{"type": "string", "minLength": 1}}}
	maps.Copy(schemas.at("RunRequest", "properties", "argv"), program)
	argv := object{"type": "array", "minItems": 1}
	maps.Copy(argv, program)
	schemas.at("StartRequest")["oneOf"] = []object{
		{"properties": object{"argv": argv}, "required": []string{"argv"}},
		{"properties": object{"script": object{"type": "string", "minLength": 1}}, "required": []string{"script"}},
	}
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
