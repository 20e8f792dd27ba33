// Command berth-provider-docker is the plugin of package docker: containers of a
// Docker Engine as workspaces.
package main

import (
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker"
)

// version is set at link time.
var version = "dev"

func main() { sdk.Serve(docker.Plugin(version)) }
