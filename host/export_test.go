package host

import "github.com/berth-dev/berth/shared/workspace"

// Waiting is how many callers wait for the workspace of a handle to be opened.
func Waiting(ws workspace.Workspace) int {
	h := ws.(*handle)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opening == nil {
		return 0
	}
	return h.opening.waiters
}
