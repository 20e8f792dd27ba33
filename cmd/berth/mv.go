package main

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newMvCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "mv REF:PATH TO",
		Short: "Rename a file or folder",
		Long: `mv renames within a workspace: into TO if that is a folder, else over it. TO is
a path there; its REF: may be repeated.`,
		Example: `  berth mv local/berth-3f62a91c0d5e4b78:draft.txt final.txt
  berth mv local/build:out local/build:out.old`,
		Args:              exactly("REF:PATH", "TO"),
		ValidArgsFunction: a.completeRefPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := parseRefPaths(cmd, args[:1])
			if err != nil {
				return err
			}
			to, err := moveTarget(paths[0].ref, args[1])
			if err != nil {
				return usage(cmd, err)
			}
			return a.mv(cmd.Context(), paths[0], to)
		},
	}
}

// moveTarget reads a path in the workspace of ref, with or without that ref
// before it.
func moveTarget(ref workspace.Ref, arg string) (string, error) {
	to := arg
	if other, rest, err := workspace.SplitRefPath(arg); err == nil {
		if other != ref {
			return "", fmt.Errorf("%s: mv stays within one workspace, %s: berth cp copies between two, and ./NAME is a name with a colon", arg, ref)
		}
		to = rest
	}
	if to == "" {
		return "", fmt.Errorf("%q: no path to move to (. is the working directory)", arg)
	}
	return to, nil
}

func (a *app) mv(ctx context.Context, from refPath, to string) error {
	ws, err := a.attach(from.ref)
	if err != nil {
		return err
	}
	if info, err := ws.Stat(ctx, to); err == nil && info.IsDir() {
		to = strings.TrimRight(to, "/") + "/" + path.Base(from.path)
	}
	return in(from.ref, ws.Rename(ctx, from.path, to))
}
