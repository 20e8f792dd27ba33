// Package durable is a provider for tests whose commands outlive its plugin: each
// workspace is a folder with a guest, and the guests run in the test's own
// process, where [StartEngine] stands for a container engine. The binary in plugin
// is its plugin.
//
// It runs on Linux, as guests do.
package durable
