package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newMkdirCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "mkdir REF:PATH...",
		Short:             "Make folders, with their parents",
		Long:              `mkdir makes folders and their parents. One that is there already is fine.`,
		Example:           `  berth mkdir local/berth-3f62a91c0d5e4b78:src/cmd`,
		Args:              atLeastOne("REF:PATH"),
		ValidArgsFunction: a.completeRefPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := parseRefPaths(cmd, args)
			if err != nil {
				return err
			}
			return a.each(paths, func(ws workspace.Workspace, p refPath) error {
				return ws.MkdirAll(cmd.Context(), p.path)
			})
		},
	}
}
