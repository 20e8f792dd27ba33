// Package boot is the guest as the first process of a container: it starts the
// process that serves, and again when that one dies, waits for every process that
// nobody else waits for, and ends all of them when it is told to end.
//
// It does as little as it can: when it ends, the workspace does.
package boot
