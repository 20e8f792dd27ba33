package sdk

import (
	"os"
)

// pluginTestEnv makes the test binary a plugin of the kind that it names.
const pluginTestEnv = "BERTH_SDK_TEST_PLUGIN"

func servePluginForTest() {
	os.Exit(1)
}
