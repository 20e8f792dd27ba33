package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newCatCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cat REF:PATH...",
		Short: "Print files",
		Long:  `cat prints the bytes of files as they are, to a terminal too.`,
		Example: `  berth cat local/berth-3f62a91c0d5e4b78:notes.txt
  berth cat local/build:out.tar | tar t`,
		Args:              atLeastOne("REF:PATH"),
		ValidArgsFunction: a.completeRefPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := parseRefPaths(cmd, args)
			if err != nil {
				return err
			}
			return a.each(paths, func(ws workspace.Workspace, p refPath) error {
				return cat(cmd.Context(), ws, p.path, a.stdout)
			})
		},
	}
}

func cat(ctx context.Context, ws workspace.Workspace, path string, w io.Writer) error {
	r, err := ws.Open(ctx, path, workspace.ReadOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return err
}
