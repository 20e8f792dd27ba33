// The plugin berth-provider-durable is for tests: see package durable.
package main

import (
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/test/durable"
)

func main() { sdk.Serve(durable.Plugin()) }
