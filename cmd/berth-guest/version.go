// Command berth-guest is what a provider of Berth places into a container: it
// serves the container's files and commands over a unix socket in there, and joins
// the standard streams of an exec to that socket. See docs/guest.md.
package main

// version is set when it is built.
var version = "devel"
