// Package copies keeps private copies of plugin binaries by their digests, so that
// what is executed is what was verified: a file in a plugin folder can be swapped
// between a look at it and its execution, a copy in a folder that only this user
// may enter cannot. Several hosts may use one [Store]'s folder at once.
package copies

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/digest"
)

// Content is a binary and the files that it finds beside itself, by their hex
// digests.
type Content struct {
	// Binary is the binary's file name.
	Binary string
	// Files has a digest for it and for each companion.
	Files map[string]string
}

// Folder is the name of the folder of a content: the binary's digest for people to
// find it by, then that of the whole.
func (c Content) Folder() string {
	names := make([]string, 0, len(c.Files))
	for name := range c.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	whole := sha256.New()
	for _, name := range append([]string{c.Binary}, names...) {
		fmt.Fprintf(whole, "%q %s\n", name, c.Files[name])
	}
	const enough = 8
	return folderPrefix + c.Files[c.Binary] + "-" + hex.EncodeToString(whole.Sum(nil)[:enough])
}

// Names in the store's folder.
const (
	folderPrefix = "sha256-"
	newPrefix    = ".new-"
	oldPrefix    = ".old-"
	locksFolder  = "locks"
)

// Store is a folder of copies. Its methods may be called concurrently.
type Store struct {
	dir string

	mu       sync.Mutex
	verified map[string]stamp // files that have not changed since they were read
}

// New makes the store of a folder, which need not exist yet.
func New(dir string) *Store { return &Store{dir: dir, verified: make(map[string]stamp)} }

// ErrNotKept is a content that is not in the store.
var ErrNotKept = errors.New("no copy of it is kept")

// DigestError is a file that does not hold what it must.
type DigestError struct {
	// Path is the file; Found and Want are hex digests.
	Path, Found, Want string
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("%s has the digest sha256:%s, not sha256:%s", e.Path, e.Found, e.Want)
}

// holdTries is how often a copy may vanish under our hands, since another host
// removes it, before we give up.
const holdTries = 10

// Copy is a verified copy, which stays until it is released.
type Copy struct {
	// Path is the binary's.
	Path string
	// Made says that there was none before.
	Made bool

	held *os.File
}

// Release lets others remove the copy.
func (c *Copy) Release() { _ = c.held.Close() }

// Path is where the copy of a content's binary is, if there is one.
func (s *Store) Path(c Content) string { return filepath.Join(s.dir, c.Folder(), c.Binary) }

// Hold returns the copy of a content. Its bytes were verified just now, or were
// before and have not changed since. A copy that is not there, or is damaged, is
// made of the files that source tells by their names; without a source it is
// [ErrNotKept], or a [*DigestError].
func (s *Store) Hold(c Content, source func(name string) string) (*Copy, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, c.Folder())
	made := false
	for range holdTries {
		held, err := holdFolder(dir)
		switch {
		case err == nil:
			if err = s.verify(dir, held, c); err == nil {
				return &Copy{Path: filepath.Join(dir, c.Binary), Made: made, held: held}, nil
			}
			if err = s.mend(dir, held, err, source != nil); err != nil {
				return nil, err
			}
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("copy of plugin: %w", err)
		case source == nil:
			return nil, ErrNotKept
		}
		if err := s.fill(dir, c, source); err != nil && !errors.Is(err, errVanished) {
			return nil, err
		}
		made = true
	}
	return nil, fmt.Errorf("copy of plugin %s: it was removed again and again", dir)
}

// mend lets go of a copy that is not as it should be, and makes room for another if
// one can be made and nothing but its bytes is wrong.
func (s *Store) mend(dir string, held *os.File, err error, replaceable bool) error {
	defer held.Close()
	if errors.Is(err, fs.ErrPermission) || !replaceable {
		return fmt.Errorf("copy of plugin: %w", err)
	}
	if info, infoErr := held.Stat(); infoErr == nil && isAt(dir, info) {
		s.discard(dir)
	}
	return nil
}

func isAt(path string, info fs.FileInfo) bool {
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(now, info)
}

// prepare makes the store's folder. One that others may write is refused, and so is
// one that would be made where they may: it is looked at before anything is made, or
// root would leave in another user's folder what that one cannot use.
func (s *Store) prepare() error {
	if err := s.trusted(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("folder for copies of plugins: %w", err)
	}
	return s.trusted()
}

// trusted checks the store's folder as that of a binary in it: its own, and those on
// the way to it, as far as they exist.
func (s *Store) trusted() error {
	if err := catalog.CheckTrust(filepath.Join(s.dir, locksFolder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("folder for copies of plugins: %w, or set another cache_dir", err)
	}
	return nil
}

// verify checks a copy that is held: that it is where only this user may write, and
// that each file has its digest.
func (s *Store) verify(dir string, held *os.File, c Content) error {
	info, err := held.Stat()
	if err != nil {
		return err
	}
	if err := private(dir, info); err != nil {
		return err
	}
	for name, want := range c.Files {
		if err := s.verifyFile(filepath.Join(dir, name), want); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) verifyFile(path, want string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("is damaged: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("is damaged: %s is not a regular file", path)
	}
	if err := private(path, info); err != nil {
		return err
	}
	s.mu.Lock()
	known, ok := s.verified[path]
	s.mu.Unlock()
	if ok && known == stampOf(info, want) {
		return nil
	}
	file, err := catalog.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return err
	}
	stamp := stampOf(before, want)
	settled := stamp.settled()
	found, err := digest.Of(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if found = strings.TrimPrefix(found, digest.Prefix); found != want {
		return &DigestError{Path: path, Found: found, Want: want}
	}
	if settled { // or a change could follow that does not show in the stamp
		s.mu.Lock()
		s.verified[path] = stamp
		s.mu.Unlock()
	}
	return nil
}

// discard removes a copy, which some process may still execute: it keeps what it
// has open.
func (s *Store) discard(dir string) {
	old, err := os.MkdirTemp(s.dir, oldPrefix)
	if err != nil {
		return // the next attempt tells why
	}
	if os.Rename(dir, filepath.Join(old, filepath.Base(dir))) == nil {
		s.mu.Lock()
		for path := range s.verified {
			if strings.HasPrefix(path, dir+string(filepath.Separator)) {
				delete(s.verified, path)
			}
		}
		s.mu.Unlock()
	}
	_ = os.RemoveAll(old)
}
