package main

import (
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newRmCommand(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm REF:PATH... [flags]",
		Short: "Remove files and whole folders",
		Long: `rm removes files, links themselves, and folders with all that is in them. The
working directory and what it lies in are refused.`,
		Example: `  berth rm local/berth-3f62a91c0d5e4b78:out.log
  berth rm -f local/build:target`,
		Args:              atLeastOne("REF:PATH"),
		ValidArgsFunction: a.completeRefPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := parseRefPaths(cmd, args)
			if err != nil {
				return err
			}
			return a.each(paths, func(ws workspace.Workspace, p refPath) error {
				if force {
					return ws.RemoveAll(cmd.Context(), p.path)
				}
				return ws.Remove(cmd.Context(), p.path)
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "what is not there is fine")
	acceptRecursive(cmd)
	return cmd
}

// acceptRecursive takes the -r that people are used to type, where it changes
// nothing.
func acceptRecursive(cmd *cobra.Command) {
	cmd.Flags().BoolP("recursive", "r", true, "folders too: always so, accepted out of habit")
}
