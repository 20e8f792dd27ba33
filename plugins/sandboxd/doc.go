// Package sandboxd is the provider of workspaces that are sessions of a sandboxd
// service, which pydantic-ai-backend has: an HTTP service that owns a container
// engine and rents sandboxes out.
//
//	func main() { sdk.Serve(sandboxd.Plugin(version)) }
//
// The service runs a program and answers when it has ended: no stdin, no output
// before the end, text instead of bytes, and what leaves its process group cannot be
// stopped. So each command runs behind a script of ours (run.sh) that keeps its
// streams in a folder of the container and hands them over encoded, in the answer to
// the one request that ran it. Only a command that takes longer than [firstLook], or
// gets stdin, is looked after by further requests (control.sh): those bring its
// output while it runs, give it stdin, and signal it. Its processes are found by a
// mark in their environment (stop.sh). The service loses answers; so the result of a
// run is kept in the container until it has arrived (result.sh).
package sandboxd
