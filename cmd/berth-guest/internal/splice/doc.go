// Package splice joins this process's standard input and output to the guest's
// socket: the role of berth-guest that a provider starts inside a container to
// speak to the guest there.
package splice
