// Package conformance runs the contract's suite through the host on real plugin
// processes: the providers that this repository builds, as users have them.
package conformance
