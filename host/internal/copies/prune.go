package copies

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// leftoverAge is far more than a copy takes to be made: what is older was left by a
// host that died.
const leftoverAge = time.Hour

// Register notes that a lock file needs copies of this store, so that no other
// host removes them.
func (s *Store) Register(lockFile string) error {
	if err := s.prepare(); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, locksFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("folder for copies of plugins: %w", err)
	}
	sum := sha256.Sum256([]byte(lockFile))
	path := filepath.Join(dir, hex.EncodeToString(sum[:]))
	if have, err := os.ReadFile(path); err == nil && string(have) == lockFile {
		return nil
	}
	tmp, err := os.CreateTemp(dir, newPrefix)
	if err != nil {
		return fmt.Errorf("folder for copies of plugins: %w", err)
	}
	_, err = tmp.WriteString(lockFile)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("folder for copies of plugins: %w", err)
	}
	return nil
}

// Prune removes the copies that no registered lock file needs and that nobody
// holds. What a lock file needs is told by needs; one that is not there any more,
// an error that wraps [fs.ErrNotExist], needs nothing. With any other error nothing
// is removed.
func (s *Store) Prune(needs func(lockFile string) ([]Content, error)) error {
	keep := make(map[string]bool)
	locks := filepath.Join(s.dir, locksFolder)
	entries, err := os.ReadDir(locks)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("old copies of plugins: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(locks, entry.Name())
		lockFile, err := os.ReadFile(path)
		if err != nil || strings.HasPrefix(entry.Name(), newPrefix) {
			continue
		}
		contents, err := needs(string(lockFile))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_ = os.Remove(path)
		case err != nil:
			return fmt.Errorf("old copies of plugins: %w", err)
		}
		for _, c := range contents {
			keep[c.Folder()] = true
		}
	}
	folders, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("old copies of plugins: %w", err)
	}
	for _, folder := range folders {
		name := folder.Name()
		switch {
		case strings.HasPrefix(name, folderPrefix) && !keep[name]:
			s.removeFree(filepath.Join(s.dir, name))
		case strings.HasPrefix(name, newPrefix), strings.HasPrefix(name, oldPrefix):
			if info, err := folder.Info(); err == nil && time.Since(info.ModTime()) > leftoverAge {
				s.removeFree(filepath.Join(s.dir, name))
			}
		}
	}
	return nil
}

func (s *Store) removeFree(dir string) {
	if held, free := isFree(dir); free {
		s.discard(dir)
		_ = held.Close()
	}
}
