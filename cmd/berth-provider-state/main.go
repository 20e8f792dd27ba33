// Command berth-provider-state is the plugin of package state: workspaces that
// hold files and run nothing.
package main

import (
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/state"
)

// version is set at link time.
var version = "dev"

func main() { sdk.Serve(state.Plugin(version)) }
