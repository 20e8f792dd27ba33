package sdk

// What the tests outside of the package need: its TestMain, which must begin
// with posix.Main, cannot be inside of it.
const PluginTestEnv = pluginTestEnv

func ServePluginForTest() { servePluginForTest() }
