package state

import (
	"fmt"
	"syscall"
)

// reserve is what uploads leave of a disk. SQLite needs room to take things
// away too: twice the write-ahead log, once for what it holds and once for the
// log itself. Without it a disk that is full stays so, whatever is removed.
const reserve = 2 * walPages * 4096

// room refuses to store more where only the reserve is left: of the disk, and of
// what the file has free inside, which it never gives back.
func (c *conn) room(n int) error {
	if c.space == nil {
		return nil
	}
	left, err := c.space()
	if err != nil {
		return fmt.Errorf("look for the room on its disk: %w", err)
	}
	if left >= reserve+int64(n) {
		return nil
	}
	var pages, size int64
	if _, err := c.row("PRAGMA freelist_count", nil, &pages); err != nil {
		return err
	}
	if _, err := c.row("PRAGMA page_size", nil, &size); err != nil {
		return err
	}
	if left += pages * size; left >= reserve+int64(n) {
		return nil
	}
	return fmt.Errorf("the disk is full but for %d MiB, which removing files needs: %w", left>>20, syscall.ENOSPC)
}
