// Command berth-provider-sandboxd is the plugin of package sandboxd: workspaces that are
// sessions of a sandboxd service.
package main

import (
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/sandboxd"
)

// version is set at link time.
var version = "dev"

func main() { sdk.Serve(sandboxd.Plugin(version)) }
