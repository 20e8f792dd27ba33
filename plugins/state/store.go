package state

import (
	"context"
	"io/fs"
	"time"
)

// store keeps documents. [sqliteStore] is the one that there is; another needs
// nothing but transactions that see one consistent state.
type store interface {
	// view runs fn on one consistent state, without changing it. It waits for
	// no writer.
	view(ctx context.Context, fn func(tx) error) error
	// update runs fn as one transaction, which is carried out as a whole or, if
	// fn or the store fails, not at all. Transactions run one after another.
	// The context ends the wait for the turn, never the transaction itself.
	update(ctx context.Context, d durability, fn func(tx) error) error
	// close waits for the transactions that run.
	close() error
	// String names the store in messages.
	String() string
}

// durability says what update promises when it returns nil.
type durability int

const (
	// durable is on the disk.
	durable durability = iota
	// lazy is on the disk no later than the next durable one: for what nobody
	// was promised yet, such as staged data.
	lazy
)

// tx is what a transaction does to the store. Names and contents are any bytes.
type tx interface {
	workspaceTx
	nodeTx
	contentTx
	reclaimTx
}

type workspaceTx interface {
	// workspaceByKey reports false where there is none.
	workspaceByKey(key string) (record, bool, error)
	// document is what every call on a workspace needs of it: its record without
	// key, provider and labels, and the node of its root.
	document(id int64) (record, node, bool, error)
	// workspaces lists those of a provider by key, those after the given one.
	workspaces(provider, after string, limit int) ([]record, error)
	// insertWorkspace sets the record's id.
	insertWorkspace(*record) error
	deleteWorkspace(id int64) error
	// addUsed changes a workspace's count of bytes; one that is gone is none.
	addUsed(id, delta int64) error
}

type nodeTx interface {
	node(id int64) (node, bool, error)
	child(parent int64, name string) (node, bool, error)
	// children lists by name, byte by byte, those after the given one.
	children(parent int64, after string, limit int) ([]node, error)
	// insertNode sets the node's id, which was never used before.
	insertNode(*node) error
	updateNode(node) error
	touch(id int64, modTime time.Time) error
	deleteNode(id int64) error
	// treeSize is the sum of the sizes of the files at and below a node.
	treeSize(id int64) (int64, error)
}

type contentTx interface {
	// newContent returns an id that was never used before.
	newContent() (int64, error)
	// appendData adds to the end of a content of the given size.
	appendData(content, size int64, data []byte) error
	// joinContent moves what from holds to the end of to.
	joinContent(to, size, from int64) error
	// readData passes pieces that follow each other, the first of which holds
	// the given offset, about limit of them. There are none beyond the end.
	readData(content, offset int64, limit int, each func(offset int64, piece []byte) error) error
	// deleteData deletes about limit pieces and reports whether that was all.
	deleteData(content int64, limit int) (done bool, err error)
}

type reclaimTx interface {
	// stage records an upload in progress; growStaged that it grew, and reports
	// whether it was still known.
	stage(staged) error
	growStaged(content, bytes int64) (bool, error)
	// unstage forgets an upload and reports whether it was still known.
	unstage(content int64) (bool, error)
	staged() ([]staged, error)
	// stagedBytes is how much uploads into a workspace would add to it.
	stagedBytes(workspace int64) (int64, error)

	// addGarbage sets the sequence number.
	addGarbage(*garbage) error
	garbage(after int64, limit int) ([]garbage, error)
	garbageTrees(workspace int64) ([]garbage, error)
	settleGarbage(seq int64) error
	deleteGarbage(seq int64) error
	// lastGarbage is the highest sequence number ever given.
	lastGarbage() (int64, error)

	putSession(session) error
	// showLife is putSession of a session that is known, for its time alone.
	showLife(id string, seen time.Time) error
	sessions() ([]session, error)
	deleteSession(id string) error
}

// record is a workspace.
type record struct {
	id          int64
	key         string // the name asked for, or the token
	provider    string
	named       bool
	incarnation string
	labels      map[string]string
	created     time.Time
	root        int64 // the node of its directory /
	limits      limits
	used        int64 // bytes of all its files, and of those removed but not yet settled
}

// limits are those of one workspace in bytes; zero is none.
type limits struct{ file, total int64 }

type kind int

// The values are stored.
const (
	kindFile kind = 1
	kindDir  kind = 2
	kindLink kind = 3
)

// node is a directory, a file or a link.
type node struct {
	id      int64
	parent  int64
	name    string
	kind    kind
	mode    fs.FileMode // permission bits, setuid, setgid and sticky
	modTime time.Time
	size    int64  // of a file
	content int64  // of a file, zero if it is empty
	target  string // of a link
}

// Parents of nodes that are in no directory.
const (
	noParent    int64 = 0  // the root directory of a workspace
	trashParent int64 = -1 // a removed tree, to be reclaimed
)

// staged is an upload in progress. Its content belongs to no file yet.
type staged struct {
	content   int64
	workspace int64
	session   string
	bytes     int64
	replaces  int64 // the size of the file that it will take the place of
}

// garbage is what nobody can reach any more: a content or a tree.
type garbage struct {
	seq       int64
	workspace int64
	content   int64
	tree      int64
	settled   bool // the tree no longer counts as used
}

// session is a process that uses the store.
type session struct {
	id   string
	seen time.Time
	// safe says that this process reads nothing that became garbage up to this
	// sequence number.
	safe int64
}
