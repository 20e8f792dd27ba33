package copies

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/host/internal/catalog"
)

// errVanished is a folder that was removed while it was being filled.
var errVanished = errors.New("the folder was removed meanwhile")

// fill makes the copy of a content in one step: another host that does so at the
// same time, or one that dies, leaves a whole one or none.
func (s *Store) fill(dir string, c Content, source func(name string) string) error {
	tmp, err := os.MkdirTemp(s.dir, newPrefix)
	if err != nil {
		return fmt.Errorf("copying plugin: %w", err)
	}
	defer os.RemoveAll(tmp) // which leads nowhere after the rename
	held, err := holdFolder(tmp)
	if err != nil {
		return vanished(err)
	}
	defer held.Close()
	for name, want := range c.Files {
		if err := copyFile(filepath.Join(tmp, name), source(name), want); err != nil {
			return fmt.Errorf("copying plugin: %w", err)
		}
	}
	_ = held.Close() // some systems rename nothing that is open; Hold looks again
	if err := os.Rename(tmp, dir); err != nil {
		if _, statErr := os.Lstat(dir); statErr == nil {
			return nil // another host was quicker; its copy is verified like ours
		}
		return vanished(err)
	}
	return nil
}

// vanished marks what comes of another host's cleaning up.
func vanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errVanished
	}
	return fmt.Errorf("copying plugin: %w", err)
}

// copyMode lets the owner execute a copy, and nobody write it.
const copyMode = 0o500

// copyFile copies a file whose bytes must have a digest. What is hashed is what is
// written.
func copyFile(to, from, want string) (err error) {
	in, err := catalog.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	hash := sha256.New()
	// No more than was there when it was opened: one that grows has another digest
	// in any case.
	if _, err := io.Copy(io.MultiWriter(hash, out), io.LimitReader(in, info.Size()+1)); err != nil {
		return err
	}
	if found := hex.EncodeToString(hash.Sum(nil)); found != want {
		return &DigestError{Path: from, Found: found, Want: want}
	}
	if err := out.Chmod(copyMode); err != nil {
		return err
	}
	return out.Sync() // a rollback may have nothing else
}
