//go:build unix && !linux

package copies

// remembers says that every file is read each time.
const remembers = false
