// Package observability has the tests of what a host and its plugins tell of
// themselves: spans that a collector gets from both sides of the boundary, figures,
// log levels at run time, and that no secret is in any of them.
package observability
