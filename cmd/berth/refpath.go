package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/transfer"
	"github.com/berth-dev/berth/shared/workspace"
)

// refPath is an argument REF:PATH.
type refPath struct {
	ref  workspace.Ref
	path string
}

// parseRefPaths reads arguments that each must name a file. The error is one of
// usage.
func parseRefPaths(cmd *cobra.Command, args []string) ([]refPath, error) {
	paths := make([]refPath, len(args))
	for i, arg := range args {
		ref, path, err := workspace.SplitRefPath(arg)
		if err == nil && path == "" {
			err = fmt.Errorf("%q: no path after the colon (. is the working directory)", arg)
		}
		if err != nil {
			return nil, usage(cmd, err)
		}
		paths[i] = refPath{ref, path}
	}
	return paths, nil
}

// parseRefOrPath reads REF or REF:PATH; without a path it is the working
// directory.
func parseRefOrPath(cmd *cobra.Command, arg string) (refPath, error) {
	if ref, err := workspace.ParseRef(arg); err == nil {
		return refPath{ref, "."}, nil
	}
	ref, path, err := workspace.SplitRefPath(arg)
	return refPath{ref, transfer.Here(path)}, usage(cmd, err)
}

// each does something to every path, and goes on after an error to the next,
// as the same tools outside do. Handles are kept, so that each workspace is
// opened once.
func (a *app) each(paths []refPath, do func(workspace.Workspace, refPath) error) error {
	handles := map[workspace.Ref]workspace.Workspace{}
	var errs []error
	for _, p := range paths {
		ws, ok := handles[p.ref]
		if !ok {
			var err error
			if ws, err = a.attach(p.ref); err != nil {
				errs = append(errs, err)
				continue
			}
			handles[p.ref] = ws
		}
		errs = append(errs, in(p.ref, do(ws, p)))
		if a.stdout.failure() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
