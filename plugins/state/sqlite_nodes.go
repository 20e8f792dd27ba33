package state

import (
	"database/sql"
	"encoding/json"
	"io/fs"
	"time"
)

// sqliteTx is a transaction of [sqliteStore].
type sqliteTx struct{ c *conn }

const recordColumns = "id, key, provider, named, incarnation, labels, created, root, max_file, max_total, used"

// recordDest are where a row of recordColumns goes; finish completes it.
func recordDest(r *record) (dest []any, finish func() error) {
	labels, created := new([]byte), new(int64)
	return []any{&r.id, &r.key, &r.provider, &r.named, &r.incarnation, labels, created, &r.root, &r.limits.file, &r.limits.total, &r.used},
		func() error {
			r.created = time.Unix(0, *created)
			return json.Unmarshal(*labels, &r.labels)
		}
}

func (t sqliteTx) document(id int64) (r record, root node, ok bool, err error) {
	root, err = scanNode(func(dest ...any) (err error) {
		ok, err = t.c.row(`SELECT w.id, w.incarnation, w.root, w.max_file, w.max_total, w.used,
				n.id, n.parent, n.name, n.kind, n.mode, n.mtime_s, n.mtime_ns, n.size, n.content, n.target
			FROM workspaces w JOIN nodes n ON n.id = w.root WHERE w.id = ?`, []any{id},
			append([]any{&r.id, &r.incarnation, &r.root, &r.limits.file, &r.limits.total, &r.used}, dest...)...)
		return err
	})
	return r, root, ok && err == nil, err
}

func (t sqliteTx) workspaceByKey(key string) (r record, ok bool, err error) {
	dest, finish := recordDest(&r)
	if ok, err = t.c.row("SELECT "+recordColumns+" FROM workspaces WHERE key = ?", []any{key}, dest...); !ok {
		return record{}, false, err
	}
	return r, true, finish()
}

func (t sqliteTx) workspaces(provider, after string, limit int) (list []record, err error) {
	err = t.c.rows("SELECT "+recordColumns+" FROM workspaces WHERE provider = ? AND key > ? ORDER BY key LIMIT ?",
		[]any{provider, after, limit}, func(rows *sql.Rows) error {
			var r record
			dest, finish := recordDest(&r)
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			if err := finish(); err != nil {
				return err
			}
			list = append(list, r)
			return nil
		})
	return list, err
}

func (t sqliteTx) insertWorkspace(r *record) error {
	labels, err := json.Marshal(r.labels)
	if err != nil {
		return err
	}
	res, err := t.c.exec("INSERT INTO workspaces (key, provider, named, incarnation, labels, created, root, max_file, max_total, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		r.key, r.provider, r.named, r.incarnation, string(labels), r.created.UnixNano(), r.root, r.limits.file, r.limits.total, r.used)
	if err != nil {
		return err
	}
	r.id, err = res.LastInsertId()
	return err
}

func (t sqliteTx) deleteWorkspace(id int64) error {
	_, err := t.c.exec("DELETE FROM workspaces WHERE id = ?", id)
	return err
}

func (t sqliteTx) addUsed(id, delta int64) error {
	if delta == 0 {
		return nil
	}
	_, err := t.c.exec("UPDATE workspaces SET used = used + ? WHERE id = ?", delta, id)
	return err
}

const nodeColumns = "id, parent, name, kind, mode, mtime_s, mtime_ns, size, content, target"

// scanNode reads a row of nodeColumns.
func scanNode(scan func(dest ...any) error) (n node, err error) {
	var name, target []byte
	var mode, sec, nsec int64
	if err := scan(&n.id, &n.parent, &name, &n.kind, &mode, &sec, &nsec, &n.size, &n.content, &target); err != nil {
		return node{}, err
	}
	n.name, n.target = string(name), string(target)
	n.mode, n.modTime = fromPosix(mode), time.Unix(sec, nsec)
	return n, nil
}

func (t sqliteTx) node(id int64) (node, bool, error) {
	return t.oneNode("SELECT "+nodeColumns+" FROM nodes WHERE id = ?", id)
}

func (t sqliteTx) child(parent int64, name string) (node, bool, error) {
	return t.oneNode("SELECT "+nodeColumns+" FROM nodes WHERE parent = ? AND name = ?", parent, []byte(name))
}

func (t sqliteTx) oneNode(query string, args ...any) (node, bool, error) {
	var ok bool
	n, err := scanNode(func(dest ...any) (err error) {
		ok, err = t.c.row(query, args, dest...)
		return err
	})
	return n, ok && err == nil, err
}

func (t sqliteTx) children(parent int64, after string, limit int) (list []node, err error) {
	err = t.c.rows("SELECT "+nodeColumns+" FROM nodes WHERE parent = ? AND name > ? ORDER BY name LIMIT ?",
		[]any{parent, []byte(after), limit}, func(rows *sql.Rows) error {
			n, err := scanNode(rows.Scan)
			list = append(list, n)
			return err
		})
	return list, err
}

func (t sqliteTx) insertNode(n *node) error {
	res, err := t.c.exec("INSERT INTO nodes (parent, name, kind, mode, mtime_s, mtime_ns, size, content, target) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		n.parent, []byte(n.name), n.kind, toPosix(n.mode), n.modTime.Unix(), n.modTime.Nanosecond(), n.size, n.content, []byte(n.target))
	if err != nil {
		return err
	}
	n.id, err = res.LastInsertId()
	return err
}

func (t sqliteTx) updateNode(n node) error {
	_, err := t.c.exec("UPDATE nodes SET parent = ?, name = ?, mode = ?, mtime_s = ?, mtime_ns = ?, size = ?, content = ? WHERE id = ?",
		n.parent, []byte(n.name), toPosix(n.mode), n.modTime.Unix(), n.modTime.Nanosecond(), n.size, n.content, n.id)
	return err
}

func (t sqliteTx) touch(id int64, modTime time.Time) error {
	_, err := t.c.exec("UPDATE nodes SET mtime_s = ?, mtime_ns = ? WHERE id = ?", modTime.Unix(), modTime.Nanosecond(), id)
	return err
}

func (t sqliteTx) deleteNode(id int64) error {
	_, err := t.c.exec("DELETE FROM nodes WHERE id = ?", id)
	return err
}

func (t sqliteTx) treeSize(id int64) (size int64, err error) {
	_, err = t.c.row(`WITH RECURSIVE tree (id, size) AS (
			SELECT id, size FROM nodes WHERE id = ?
			UNION ALL SELECT n.id, n.size FROM nodes n JOIN tree ON n.parent = tree.id)
		SELECT coalesce(sum(size), 0) FROM tree`, []any{id}, &size)
	return size, err
}

// The bits of a stored mode are those of POSIX.
const (
	posixSetuid = 0o4000
	posixSetgid = 0o2000
	posixSticky = 0o1000
)

// modeBits are the ones that can be changed.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

func toPosix(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= posixSetuid
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= posixSetgid
	}
	if mode&fs.ModeSticky != 0 {
		bits |= posixSticky
	}
	return bits
}

func fromPosix(bits int64) fs.FileMode {
	mode := fs.FileMode(bits) & fs.ModePerm //nolint:gosec // masked
	if bits&posixSetuid != 0 {
		mode |= fs.ModeSetuid
	}
	if bits&posixSetgid != 0 {
		mode |= fs.ModeSetgid
	}
	if bits&posixSticky != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}
