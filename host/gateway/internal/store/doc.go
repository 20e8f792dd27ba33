// Package store keeps the records of a gateway's sessions in SQL: in an SQLite file
// of this process's own, or in a PostgreSQL database that several gateways share.
//
//	st, err := store.Open(ctx, "file:/var/lib/berth/sessions.db")
//	st, err := store.Open(ctx, "postgres://berth@db/berth")
//
// A record changes only from the version that the changer read ([Store.Swap]), so of
// two gateways that want one session exactly one gets it. Every moment in it is told
// by the database's clock: the clocks of gateways need not agree.
package store
