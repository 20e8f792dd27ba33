package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newExecCommand(a *app) *cobra.Command {
	var command commandFlags
	cmd := &cobra.Command{
		Use:   "exec REF [flags] -- ARGV...",
		Short: "Run a command in an existing workspace",
		Long: `exec runs a command in the workspace of a ref, as run does. It never makes a
workspace: one that is gone is an error.`,
		Example: `  berth exec local/berth-3f62a91c0d5e4b78 -- ls -l
  berth exec local/build -w src --timeout 30s --shell -- 'make 2>&1 | tail'`,
		Args:              oneAndCommand("REF"),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := workspace.ParseRef(args[0])
			if err != nil {
				return usage(cmd, err)
			}
			c, err := await(a.ended, 0, func() (workspace.Command, error) { return command.command(args[1:]) })
			if err != nil {
				return usage(cmd, err)
			}
			return a.execIn(cmd.Context(), ref, c)
		},
	}
	command.add(cmd)
	return cmd
}

func (a *app) execIn(ctx context.Context, ref workspace.Ref, c workspace.Command) error {
	a.connect(&c)
	if err := c.Validate(); err != nil {
		return err
	}
	ws, err := a.attach(ref)
	if err != nil {
		return err
	}
	return a.runCommand(ctx, ref, ws, c)
}

// attach makes a handle to an existing workspace.
func (a *app) attach(ref workspace.Ref) (workspace.Workspace, error) {
	h, err := a.openHost()
	if err != nil {
		return nil, err
	}
	return h.Attach(ref)
}
