package posix

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// removeWait is how long a tree is removed again in which somebody still
	// makes files: a command that has not been stopped yet.
	removeWait = 3 * time.Second
	// removeRetry is between two tries of that.
	removeRetry = 20 * time.Millisecond
)

// RemoveTree removes a tree and never follows a link. Unlike [os.RemoveAll] it
// also removes what is in folders that their owner has made read-only, and waits
// for a moment for who still makes files there. A path that is not there is no
// error. It is for providers that end a workspace.
func RemoveTree(path string) error {
	for deadline := time.Now().Add(removeWait); ; time.Sleep(removeRetry) {
		err := os.RemoveAll(path)
		if errors.Is(err, fs.ErrPermission) {
			openFolders(path)
			err = os.RemoveAll(path)
		}
		if err == nil || errors.Is(err, fs.ErrPermission) || time.Now().After(deadline) {
			return err
		}
	}
}

// openFolders lets their owner change the folders of a tree, as far as it can.
func openFolders(path string) {
	_ = filepath.WalkDir(path, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() { // before its entries are read
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
}
