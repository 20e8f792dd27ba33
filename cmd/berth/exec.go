package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newExecCommand(a *app) *cobra.Command {
	var command commandFlags
	var detach bool
	cmd := &cobra.Command{
		Use:   "exec REF [flags] -- ARGV...",
		Short: "Run a command in an existing workspace",
		Long: `exec runs a command in the workspace of a ref, as run does. It never makes a
workspace: one that is gone is an error.

With --detach it starts the command, prints the id of its run and leaves it to
itself, without an input: berth attach follows it, berth runs lists it, berth stop
ends it. Of its output the last MiB is kept for that. Not every provider can.`,
		Example: `  berth exec local/berth-3f62a91c0d5e4b78 -- ls -l
  berth exec local/build -w src --timeout 30s --shell -- 'make 2>&1 | tail'
  run=$(berth exec docker/build --detach -- make test)`,
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
			c.Detached = detach
			return a.execIn(cmd.Context(), ref, c)
		},
	}
	command.add(cmd)
	cmd.Flags().BoolVar(&detach, "detach", false, "start it, print the id of its run, and leave it to itself")
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
	if err := a.opened(ctx, ws); err != nil {
		return err
	}
	if c.Detached {
		return in(ref, a.runDetached(ctx, ws, c))
	}
	return a.runCommand(ctx, ref, ws, c)
}

// attach makes a handle to an existing workspace.
func (a *app) attach(ref workspace.Ref) (workspace.Workspace, error) {
	h, err := a.openHost()
	if err != nil {
		return nil, err
	}
	return h.Attach(ref, a.watchOpening()...)
}
