package catalog

import "sync"

// Pin has a plugin run certain bytes, and no others, whatever stands at its
// [Binary]'s Path.
type Pin struct {
	// Digest is that of the bytes, Content tells them and all that belongs to them
	// from any others.
	Digest, Content string
	// RolledBackFrom is the digest that stood in the plugin folder when the
	// operator went back to this one; empty if they did not.
	RolledBackFrom string
	// Open returns a file that holds those bytes, verified just now, which nobody
	// else may write and which stays until it is released.
	Open func() (path string, release func(), err error)
}

func (p Pin) same(other Pin) bool {
	return p.Content == other.Content && p.RolledBackFrom == other.RolledBackFrom
}

// Pinned returns the binary that runs what a pin says.
func (b Binary) Pinned(pin Pin) Binary {
	b.pin = &pin
	return b
}

// Pin says what the binary is pinned to, if it is.
func (b Binary) Pin() (pin Pin, pinned bool) {
	if b.pin == nil {
		return Pin{}, false
	}
	return *b.pin, true
}

// Open returns the file to execute: that at Path, or for a pinned binary one that
// was verified just now. It is released when its process has ended.
func (b Binary) Open() (path string, release func(), err error) {
	if b.pin == nil {
		return b.Path, func() {}, nil
	}
	return b.pin.Open()
}

// At is a binary that nobody looked for. Path need not lead anywhere if it is to
// be [Binary.Pinned].
func At(name, path string) Binary { return newBinary(name, path, nil) }

// Digests computes each file's digest once, and again when the file has changed as
// far as inode, size and modification time tell.
type Digests struct {
	mu    sync.Mutex
	files map[string]*sum
}

// Of returns "sha256:" and the hex digest of the bytes that stand at path now.
func (d *Digests) Of(path string) (string, error) {
	d.mu.Lock()
	if d.files == nil {
		d.files = make(map[string]*sum)
	}
	file := d.files[path]
	if file == nil {
		file = &sum{}
		d.files[path] = file
	}
	d.mu.Unlock()
	return file.of(path)
}
