package state

// Marks of a file of ours, in the header of every SQLite file.
const (
	applicationID = 0x42525448 // "BRTH"
	schemaVersion = 1
)

// schema is the document as tables. Names are BLOBs, which compare byte by
// byte. AUTOINCREMENT keeps an id from ever being used again: a handle or a
// reader that knew the old one must not meet a new one.
//
// A content is a sequence of extents, each of which points to a blob, so that
// staged data joins a file without being copied. It only ever grows: a reader
// that knows its size as it was sees what it was.
const schema = `
CREATE TABLE workspaces (
	id          INTEGER PRIMARY KEY AUTOINCREMENT,
	key         TEXT NOT NULL UNIQUE,
	provider    TEXT NOT NULL,
	named       INTEGER NOT NULL,
	incarnation TEXT NOT NULL,
	labels      TEXT NOT NULL,
	created     INTEGER NOT NULL,
	root        INTEGER NOT NULL,
	max_file    INTEGER NOT NULL,
	max_total   INTEGER NOT NULL,
	used        INTEGER NOT NULL
) STRICT;

CREATE TABLE nodes (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	parent   INTEGER NOT NULL,
	name     BLOB NOT NULL,
	kind     INTEGER NOT NULL,
	mode     INTEGER NOT NULL,
	mtime_s  INTEGER NOT NULL,
	mtime_ns INTEGER NOT NULL,
	size     INTEGER NOT NULL,
	content  INTEGER NOT NULL,
	target   BLOB
) STRICT;
CREATE UNIQUE INDEX nodes_by_name ON nodes (parent, name);

CREATE TABLE contents (last INTEGER NOT NULL) STRICT;
INSERT INTO contents VALUES (0);

CREATE TABLE extents (
	content INTEGER NOT NULL,
	offset  INTEGER NOT NULL,
	blob    INTEGER NOT NULL,
	PRIMARY KEY (content, offset)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
	id   INTEGER PRIMARY KEY,
	data BLOB NOT NULL
) STRICT;

CREATE TABLE staged (
	content   INTEGER PRIMARY KEY,
	workspace INTEGER NOT NULL,
	session   TEXT NOT NULL,
	bytes     INTEGER NOT NULL,
	replaces  INTEGER NOT NULL
) STRICT;

CREATE TABLE garbage (
	seq       INTEGER PRIMARY KEY AUTOINCREMENT,
	workspace INTEGER NOT NULL,
	content   INTEGER NOT NULL,
	tree      INTEGER NOT NULL,
	settled   INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
	id   TEXT PRIMARY KEY,
	seen INTEGER NOT NULL,
	safe INTEGER NOT NULL
) STRICT;
`
