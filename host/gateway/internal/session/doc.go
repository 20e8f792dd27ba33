// Package session keeps the life of a gateway's sessions: their records in a store
// that several gateways may share, and the workspaces behind them.
package session
