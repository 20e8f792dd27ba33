//go:build unix

package posix

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/berth-dev/berth/plugin/sdk"
)

// dirOf is where a command starts.
func (w *Workspace) dirOf(cmd sdk.Command) string {
	switch {
	case cmd.Dir == "":
		return w.dir
	case filepath.IsAbs(cmd.Dir):
		return cmd.Dir
	}
	return w.dir + "/" + cmd.Dir
}

// environment is the workspace's own with the command's, in a set order.
func (w *Workspace) environment(added map[string]string) []string {
	all := maps.Clone(w.env)
	if all == nil {
		all = make(map[string]string, len(added))
	}
	maps.Copy(all, added)
	list := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}

// startCancelled is a start that its context has ended.
func startCancelled(ctx context.Context) error {
	return fmt.Errorf("starting the command: %w", ctx.Err())
}
