// Command probe is what the conformance suite runs in a workspace: one static
// binary that needs no shell, no other program and no library, and says exactly
// what it saw. Each subcommand does one thing; `probe help` lists them.
package main
