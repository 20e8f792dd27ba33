package posix

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"time"
)

// staged is a file that nobody sees yet.
type staged struct {
	file *os.File
	name string // empty while it has none
	// elsewhere says that it is in another folder, and can only be copied.
	elsewhere bool
}

// newStaged makes a file in the target's own folder. Where the target exists and
// its folder cannot be written, it is made wherever one can be.
func newStaged(target string, exists bool) (*staged, error) {
	file, name, err := openStaged(filepathDir(target))
	if err == nil || !exists {
		return &staged{file: file, name: name}, err
	}
	file, tempErr := os.CreateTemp("", "berth-*")
	if tempErr != nil {
		return nil, errors.Join(err, tempErr)
	}
	s := &staged{file: file, name: file.Name(), elsewhere: true}
	if os.Remove(s.name) == nil { // not on every system while it is open
		s.name = ""
	}
	return s, nil
}

// hiddenName is a name in a folder that nobody uses.
func hiddenName(dir string) string { return dir + "/.berth-" + rand.Text() + ".tmp" }

// openNamed makes a file under a hidden name, where unnamed ones cannot be made.
func openNamed(dir string) (*os.File, string, error) {
	name := hiddenName(dir)
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return file, name, err
}

// prepare gives the file its owner, mode and time before anybody sees it.
func (s *staged) prepare(mode fs.FileMode, old fs.FileInfo, modTime time.Time) error {
	if old != nil {
		if err := chownLike(s.file, old); err != nil {
			return err
		}
	}
	if err := s.file.Chmod(mode); err != nil {
		return err
	}
	if modTime.IsZero() {
		return nil
	}
	return chtimesFile(s.file, modTime)
}

// publish puts the file in the target's place in one step.
func (s *staged) publish(target string, exclusive bool) error {
	if s.name == "" {
		err := s.link(target)
		if !errors.Is(err, fs.ErrExist) || exclusive {
			return err
		}
		// A link cannot replace: it needs a name of its own first.
		name := hiddenName(filepathDir(target))
		if err := s.link(name); err != nil {
			return err
		}
		s.name = name
	}
	if exclusive {
		return renameNew(s.name, target) // discard removes a name that is left
	}
	err := os.Rename(s.name, target)
	if err == nil {
		s.name = ""
	}
	return err
}

// discard removes what was not published. It is called once, at the end.
func (s *staged) discard() {
	_ = s.file.Close()
	if s.name != "" {
		_ = os.Remove(s.name)
	}
}
