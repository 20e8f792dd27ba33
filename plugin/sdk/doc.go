// Package sdk is for authors of providers: a plugin is a [Plugin] value whose
// New makes a [Provider], and a main function of one line.
//
//	func main() { sdk.Serve(sdk.Plugin[Config]{Name: "acme", Version: version, New: New}) }
//
// A provider makes, finds and ends workspaces; a workspace does what it can by
// implementing [Commander], [Filesystem] and the small interfaces beside them,
// which the SDK discovers and announces. Timeouts, output limits, partial
// output, path resolution, cancellation, the cache of attached workspaces,
// validation, logging and the life of the process are the SDK's.
package sdk
