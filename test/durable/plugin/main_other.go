//go:build !linux

// The plugin berth-provider-durable is for tests on Linux: see package durable.
package main

func main() { panic("guests run on Linux") }
