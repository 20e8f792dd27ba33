// Command berth-provider-local is a plugin whose workspaces are folders of this
// machine. It is no sandbox.
package main

import (
	"github.com/berth-dev/berth/examples/provider-local/local"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

// version is set when it is built.
var version = "dev"

func main() {
	posix.Main()
	sdk.Serve(local.Plugin(version))
}
