package sdk

import (
	"encoding/json"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// Two types of one name in different packages are two types: a provider's Command
// that holds a workspace.Command has its own keys, and that one's below.
func TestSchemaOfTypesOfOneName(t *testing.T) {
	type Command struct {
		Own   string            `json:"own"`
		Inner workspace.Command `json:"inner"`
	}
	text, err := Schema[Command]()
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct {
			Properties map[string]any
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if _, ok := schema.Properties["own"]; !ok || len(schema.Properties) != 2 || len(schema.Properties["inner"].Properties) == 0 {
		t.Errorf("schema %s", text)
	}
}
