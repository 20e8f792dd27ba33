package catalog

import (
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/berth-dev/berth/shared/digest"
)

// Binary is one plugin binary on this machine.
type Binary struct {
	// Name is the plugin's: NAME of berth-provider-NAME.
	Name string
	// Path is absolute, and as it was found: a link is not resolved.
	Path string

	info   fs.FileInfo // what stood at Path when it was found
	digest *sum
	pin    *Pin
}

func newBinary(name, path string, info fs.FileInfo) Binary {
	return Binary{Name: name, Path: path, info: info, digest: &sum{}}
}

// Same reports whether other is the same file, unchanged as far as inode, size
// and modification time tell, or is pinned to the same bytes.
func (b Binary) Same(other Binary) bool {
	if b.pin != nil || other.pin != nil {
		return b.pin != nil && other.pin != nil && b.Path == other.Path && b.pin.same(*other.pin)
	}
	return b.Path == other.Path && b.info != nil && other.info != nil && digest.SameFile(b.info, other.info)
}

// sum is the digest of a file, computed once if that does not change.
type sum struct {
	mu     sync.Mutex
	memory digest.Memory
	known  atomic.Pointer[string]
}

// Digest returns "sha256:" and the hex digest of the bytes that stand at Path
// now, or of those that it is pinned to. It is computed once and again only when
// inode, size or modification time of the opened file have changed.
func (b Binary) Digest() (string, error) {
	if b.pin != nil {
		return b.pin.Digest, nil
	}
	d := b.digest
	if d == nil { // a Binary that was not found here
		d = &sum{}
	}
	text, err := d.of(b.Path)
	if err != nil {
		return "", fmt.Errorf("digest of plugin %s: %w", b.Name, err)
	}
	return text, nil
}

// of returns the digest of the file that is at path now.
func (d *sum) of(path string) (string, error) {
	file, err := Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	text, err := d.memory.Of(file)
	if err != nil {
		return "", err
	}
	d.known.Store(&text)
	return text, nil
}

// KnownDigest returns the digest if [Binary.Digest] has computed it, or "". It
// never waits.
func (b Binary) KnownDigest() string {
	if b.pin != nil {
		return b.pin.Digest
	}
	if b.digest == nil {
		return ""
	}
	if text := b.digest.known.Load(); text != nil {
		return *text
	}
	return ""
}

// executable returns nil if info is that of a file that can be executed.
func executable(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (%s)", path, info.Mode().Type())
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is not executable (mode %04o): chmod +x it", path, info.Mode().Perm())
	}
	return nil
}
