package state

import (
	"database/sql"
	"time"
)

const (
	// chunkSize is the size of a blob that an upload makes: one short
	// transaction each.
	chunkSize = 256 << 10
	// smallTail is the size up to which an append rewrites the last blob rather
	// than making one more, so that a log of short lines is not a row a line.
	smallTail = 16 << 10
)

func (t sqliteTx) newContent() (id int64, err error) {
	_, err = t.c.row("UPDATE contents SET last = last + 1 RETURNING last", nil, &id)
	return id, err
}

func (t sqliteTx) appendData(content, size int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := t.c.room(len(data)); err != nil {
		return err
	}
	if size > 0 {
		var offset, blob int64
		ok, err := t.c.row("SELECT offset, blob FROM extents WHERE content = ? ORDER BY offset DESC LIMIT 1", []any{content}, &offset, &blob)
		if err != nil {
			return err
		}
		if tail := size - offset; ok && tail < smallTail && tail+int64(len(data)) <= chunkSize {
			var old []byte
			if _, err := t.c.row("SELECT data FROM blobs WHERE id = ?", []any{blob}, &old); err != nil {
				return err
			}
			_, err := t.c.exec("UPDATE blobs SET data = ? WHERE id = ?", append(old, data...), blob)
			return err
		}
	}
	res, err := t.c.exec("INSERT INTO blobs (data) VALUES (?)", data)
	if err != nil {
		return err
	}
	blob, err := res.LastInsertId()
	if err != nil {
		return err
	}
	_, err = t.c.exec("INSERT INTO extents (content, offset, blob) VALUES (?, ?, ?)", content, size, blob)
	return err
}

func (t sqliteTx) joinContent(to, size, from int64) error {
	_, err := t.c.exec("UPDATE extents SET content = ?, offset = offset + ? WHERE content = ?", to, size, from)
	return err
}

func (t sqliteTx) readData(content, offset int64, limit int, each func(int64, []byte) error) error {
	var data sql.RawBytes
	return t.c.rows(`SELECT e.offset, b.data FROM extents e JOIN blobs b ON b.id = e.blob
		WHERE e.content = ?1 AND e.offset >= coalesce((SELECT max(offset) FROM extents WHERE content = ?1 AND offset <= ?2), 0)
		ORDER BY e.offset LIMIT ?3`,
		[]any{content, offset, limit}, func(rows *sql.Rows) error {
			var start int64
			if err := rows.Scan(&start, &data); err != nil {
				return err
			}
			return each(start, data)
		})
}

func (t sqliteTx) deleteData(content int64, limit int) (done bool, err error) {
	var offsets, blobs []int64
	err = t.c.rows("SELECT offset, blob FROM extents WHERE content = ? ORDER BY offset LIMIT ?", []any{content, limit}, func(rows *sql.Rows) error {
		var offset, blob int64
		err := rows.Scan(&offset, &blob)
		offsets, blobs = append(offsets, offset), append(blobs, blob)
		return err
	})
	if err != nil {
		return false, err
	}
	for i := range blobs {
		if _, err := t.c.exec("DELETE FROM blobs WHERE id = ?", blobs[i]); err != nil {
			return false, err
		}
		if _, err := t.c.exec("DELETE FROM extents WHERE content = ? AND offset = ?", content, offsets[i]); err != nil {
			return false, err
		}
	}
	return len(blobs) < limit, nil
}

func (t sqliteTx) stage(s staged) error {
	_, err := t.c.exec("INSERT INTO staged (content, workspace, session, bytes, replaces) VALUES (?, ?, ?, ?, ?)",
		s.content, s.workspace, s.session, s.bytes, s.replaces)
	return err
}

func (t sqliteTx) growStaged(content, bytes int64) (bool, error) {
	return t.changed("UPDATE staged SET bytes = bytes + ? WHERE content = ?", bytes, content)
}

func (t sqliteTx) unstage(content int64) (bool, error) {
	return t.changed("DELETE FROM staged WHERE content = ?", content)
}

// changed reports whether a statement changed any row.
func (t sqliteTx) changed(query string, args ...any) (bool, error) {
	res, err := t.c.exec(query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

func (t sqliteTx) staged() (list []staged, err error) {
	err = t.c.rows("SELECT content, workspace, session, bytes, replaces FROM staged", nil, func(rows *sql.Rows) error {
		var s staged
		err := rows.Scan(&s.content, &s.workspace, &s.session, &s.bytes, &s.replaces)
		list = append(list, s)
		return err
	})
	return list, err
}

func (t sqliteTx) stagedBytes(workspace int64) (sum int64, err error) {
	_, err = t.c.row("SELECT coalesce(sum(max(bytes - replaces, 0)), 0) FROM staged WHERE workspace = ?", []any{workspace}, &sum)
	return sum, err
}

func (t sqliteTx) addGarbage(g *garbage) error {
	res, err := t.c.exec("INSERT INTO garbage (workspace, content, tree, settled) VALUES (?, ?, ?, ?)", g.workspace, g.content, g.tree, g.settled)
	if err != nil {
		return err
	}
	g.seq, err = res.LastInsertId()
	return err
}

func (t sqliteTx) garbage(after int64, limit int) ([]garbage, error) {
	return t.garbageRows("SELECT seq, workspace, content, tree, settled FROM garbage WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
}

func (t sqliteTx) garbageTrees(workspace int64) ([]garbage, error) {
	return t.garbageRows("SELECT seq, workspace, content, tree, settled FROM garbage WHERE workspace = ? AND tree != 0 AND settled = 0", workspace)
}

func (t sqliteTx) garbageRows(query string, args ...any) (list []garbage, err error) {
	err = t.c.rows(query, args, func(rows *sql.Rows) error {
		var g garbage
		err := rows.Scan(&g.seq, &g.workspace, &g.content, &g.tree, &g.settled)
		list = append(list, g)
		return err
	})
	return list, err
}

func (t sqliteTx) settleGarbage(seq int64) error {
	_, err := t.c.exec("UPDATE garbage SET settled = 1 WHERE seq = ?", seq)
	return err
}

func (t sqliteTx) deleteGarbage(seq int64) error {
	_, err := t.c.exec("DELETE FROM garbage WHERE seq = ?", seq)
	return err
}

func (t sqliteTx) lastGarbage() (seq int64, err error) {
	_, err = t.c.row("SELECT seq FROM sqlite_sequence WHERE name = 'garbage'", nil, &seq)
	return seq, err
}

func (t sqliteTx) putSession(s session) error {
	_, err := t.c.exec("INSERT INTO sessions (id, seen, safe) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, safe = excluded.safe",
		s.id, s.seen.UnixNano(), s.safe)
	return err
}

func (t sqliteTx) showLife(id string, seen time.Time) error {
	_, err := t.c.exec("UPDATE sessions SET seen = ? WHERE id = ?", seen.UnixNano(), id)
	return err
}

func (t sqliteTx) sessions() (list []session, err error) {
	err = t.c.rows("SELECT id, seen, safe FROM sessions", nil, func(rows *sql.Rows) error {
		var s session
		var seen int64
		err := rows.Scan(&s.id, &seen, &s.safe)
		s.seen = time.Unix(0, seen)
		list = append(list, s)
		return err
	})
	return list, err
}

func (t sqliteTx) deleteSession(id string) error {
	_, err := t.c.exec("DELETE FROM sessions WHERE id = ?", id)
	return err
}
