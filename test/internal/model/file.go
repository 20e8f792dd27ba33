// Package model knows what a file may hold while the calls that write it are
// disturbed, for tests that compare that with what it does hold.
package model

import "bytes"

// File is what its only writer knows of a file. The zero value is one that is not
// there. It is used by one goroutine.
type File struct {
	may   [][]byte // more than one where a write's outcome is not known
	there bool
}

// Wrote notes a write that was acknowledged.
func (f *File) Wrote(data []byte) { f.may, f.there = [][]byte{data}, true }

// MayHaveWritten notes a write whose outcome is not known.
func (f *File) MayHaveWritten(data []byte) { f.may = append(f.may, data) }

// MayBeAbsent reports whether no write was acknowledged.
func (f *File) MayBeAbsent() bool { return !f.there }

// Contents is how many there may be.
func (f *File) Contents() int { return len(f.may) }

// Is reports whether data is what the file may hold. From then on it is what the file
// holds.
func (f *File) Is(data []byte) bool {
	for _, may := range f.may {
		if bytes.Equal(may, data) {
			f.Wrote(may)
			return true
		}
	}
	return false
}
