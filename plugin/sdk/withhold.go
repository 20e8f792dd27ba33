package sdk

import "github.com/berth-dev/berth/shared/workspace"

// Withholder tells features that a workspace lacks though it has their methods,
// because of what it finds where it is: no shell, say, or no tool that is exact.
// It may be asked of a nil workspace, as [Plugin.Workspace] may be one.
type Withholder interface {
	Withhold() []workspace.Feature
}

// withheld takes those features away.
func withheld(ws Workspace, features workspace.Features) {
	withholder, ok := ws.(Withholder)
	if !ok {
		return
	}
	for _, f := range withholder.Withhold() {
		delete(features, f)
	}
}
