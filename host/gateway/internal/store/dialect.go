package store

import "strings"

// dialect is what the databases say differently.
type dialect struct {
	// now is the moment in microseconds since 1970, by the database's clock.
	now string
	// greatest is the function of that name.
	greatest string
	// share keeps a row that was read from being changed until the transaction ends.
	// SQLite has one writer at a time, and needs no such thing.
	share string
	// lock makes transactions that count sessions wait for each other. Likewise.
	lock string
	// again reports whether the database gave a transaction up for another one.
	again func(error) bool
}

// sql fills in what differs.
func (d dialect) sql(query string) string {
	return strings.NewReplacer("{now}", d.now, "{greatest}", d.greatest, "{share}", d.share).Replace(query)
}

// text is what both databases can hold: command lines and errors may be any bytes.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}
