package workspace_test

import (
	"reflect"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestOptions(t *testing.T) {
	var got workspace.OpenOptions
	for _, opt := range []workspace.Option{
		workspace.WithName("conv-42"),
		workspace.WithToken("berth-3f62a91c0d5e4b78"),
		workspace.WithLabels(map[string]string{"team": "a"}),
		workspace.WithConfig(map[string]any{"image": "x"}),
		workspace.WithName("conv-43"), // the last one counts
	} {
		opt(&got)
	}
	want := workspace.OpenOptions{
		Name: "conv-43", Token: "berth-3f62a91c0d5e4b78",
		Labels: map[string]string{"team": "a"}, Config: map[string]any{"image": "x"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestFeatures(t *testing.T) {
	f := workspace.Features{workspace.FeatureFiles: true, workspace.FeatureChmod: false, "new-one": true}
	if !f.Has(workspace.FeatureFiles) || f.Has(workspace.FeatureChmod) || f.Has(workspace.FeatureCommands) || !f.Has("new-one") {
		t.Errorf("Has is wrong for %v", f)
	}
	if workspace.Features(nil).Has(workspace.FeatureFiles) {
		t.Error("no features have one")
	}
}
