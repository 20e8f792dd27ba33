// Package session keeps the life of a gateway's sessions: their records in a store
// that several gateways may share, and the workspaces behind them.
//
//	m, err := session.New(session.Config{Host: h, Store: st, Runtimes: runtimes, Policy: policy, Token: token})
//	info, token, err := m.Open(ctx, session.OpenRequest{ID: "conv-42", Reuse: true})
//	use, err := m.Acquire(ctx, "conv-42")
//	defer use.Release()
//	res, err := use.Workspace.Run(ctx, cmd)
//
// The life of a session:
//
//	           ┌────────────── Gone ◀─ its workspace was found gone
//	           ▼                 ▲
//	claim ─▶ Opening ─▶ Running ─┴─▶ Hibernating ─▶ Hibernated ─▶ Waking ─▶ Running
//	           ▲           │                             │
//	           └─ Closed ◀─┴── Closing ◀─────────────────┘      Purging ─▶ no record
//
// The record comes before the workspace, and holds the token that the workspace is
// made with. Whoever is at work in a record owns it with a lease: if that gateway
// dies, another one finds the lease run out and goes on, and the same token gives it
// the same workspace (contract L2). Every step is a change from the version of the
// record that was read, so that of two who want to make one, one does.
//
// A use of a session is told to the store ahead of time, and renewed while it lasts:
// nobody puts a session to sleep, or closes it for being idle, under a request.
package session
