package state

import (
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// The limits of Linux, which programs expect.
const (
	maxNameLen   = 255
	maxPathLen   = 4096
	maxTargetLen = 4095
	maxLinks     = 40
)

// onLink says what a walk does when its last element is a link.
type onLink int

const (
	followLast onLink = iota
	keepLast          // the link itself, but followed before a trailing slash
	entryLast         // the link itself; a trailing slash is ENOTDIR, as where an entry is removed or renamed
	newLast           // whatever is there itself, as where one is made
)

// onMissing says what a walk does when an element is not there.
type onMissing int

const (
	failMissing    onMissing = iota // only the last may be missing
	makeMissing                     // makes directories of all but the last
	pretendMissing                  // as makeMissing, but changes nothing
	keepMissing                     // goes on by the names alone, as realpath -m does
)

// walker resolves paths inside a document, as the kernel would.
type walker struct {
	tx   tx
	root node
	last onLink
	miss onMissing
	// file says that a file is to be written: one with a slash is EISDIR.
	file  bool
	links int
	// made is when directories are made.
	made time.Time
}

// step is a directory, or whatever a kept name stands for, on the way down.
type step struct {
	name string
	node node // its id is zero if it is not there
}

// place is where a path leads.
type place struct {
	// steps lead from the root to the directory that holds the entry or, where
	// name is empty, to the entry itself: the root, or a path that ends in . or ..
	steps []step
	name  string
	node  node
	found bool
	// slash says that the path demands a directory.
	slash bool
	// dots says that the path ended in . or .. where name is empty.
	dots bool
}

// dir is the directory that holds the entry.
func (p place) dir() node { return p.steps[len(p.steps)-1].node }

// walk resolves a path from the steps given, by default the root.
func (w *walker) walk(path string, from ...step) (place, error) {
	if len(path) > maxPathLen {
		return place{}, syscall.ENAMETOOLONG
	}
	steps := append([]step(nil), from...)
	if len(steps) == 0 || strings.HasPrefix(path, "/") {
		steps = append(steps[:0], step{node: w.root})
	}
	rest, given := path, len(path) // the last given bytes of rest are the caller's own
	dots := false
	for {
		rest = strings.TrimLeft(rest, "/")
		given = min(given, len(rest))
		if rest == "" {
			top := steps[len(steps)-1].node
			return place{steps: steps, node: top, found: top.id != 0, dots: dots}, nil
		}
		name, after, slash := strings.Cut(rest, "/")
		own := len(rest) <= given
		last := strings.Trim(after, "/") == ""
		rest = after
		dots = name == "." || name == ".."
		switch {
		case name == ".":
			continue
		case name == "..":
			if len(steps) > 1 {
				steps = steps[:len(steps)-1]
			}
			continue
		case len(name) > maxNameLen:
			return place{}, syscall.ENAMETOOLONG
		}

		if last && slash && w.file {
			return place{}, syscall.EISDIR
		}
		top := steps[len(steps)-1].node
		n, found, err := w.lookup(top, name)
		switch {
		case err != nil:
			return place{}, err
		case found && n.kind == kindLink && w.follows(last, slash):
			if last && slash && w.last == entryLast {
				return place{}, syscall.ENOTDIR
			}
			if w.links++; w.links > maxLinks {
				return place{}, syscall.ELOOP
			}
			if strings.HasPrefix(n.target, "/") {
				steps = steps[:1]
			}
			// The slash after the link stays: it demands a directory.
			rest = n.target
			if slash {
				rest += "/" + after
			}
			given = min(given, len(after))
		case last && w.miss != keepMissing:
			if found && slash && n.kind != kindDir && w.last != newLast {
				return place{}, syscall.ENOTDIR
			}
			return place{steps: steps, name: name, node: n, found: found, slash: slash}, nil
		case found && n.kind != kindDir && w.miss != keepMissing:
			return place{}, syscall.ENOTDIR
		case found:
			steps = append(steps, step{name, n})
		default:
			n, err := w.missing(top, name, own, given)
			if err != nil {
				return place{}, err
			}
			steps = append(steps, step{name, n})
		}
	}
}

func (w *walker) lookup(dir node, name string) (node, bool, error) {
	if dir.id == 0 || dir.kind != kindDir {
		return node{}, false, nil
	}
	return w.tx.child(dir.id, name)
}

func (w *walker) follows(last, slash bool) bool {
	return !last || slash && w.last != newLast || w.last == followLast
}

// missing stands in for a directory on the way that is not there. Only those
// that the caller named are made, never those that a link names.
func (w *walker) missing(dir node, name string, own bool, given int) (node, error) {
	switch {
	case w.miss == keepMissing:
		return node{}, nil
	case w.miss == failMissing, !own && given == 0:
		return node{}, syscall.ENOENT
	case !own: // a dangling link where a directory is needed
		return node{}, syscall.EEXIST
	case w.miss == pretendMissing:
		return node{kind: kindDir}, nil
	}
	n := node{parent: dir.id, name: name, kind: kindDir, mode: workspace.DefaultDirMode, modTime: w.made}
	if err := w.tx.insertNode(&n); err != nil {
		return node{}, err
	}
	return n, w.tx.touch(dir.id, w.made)
}

// realPath joins the names of all steps.
func realPath(steps []step) string {
	var b strings.Builder
	for _, s := range steps[1:] {
		b.WriteByte('/')
		b.WriteString(s.name)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}
