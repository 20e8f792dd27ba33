package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

// removeTimeout is for destroying a workspace after its command: services take
// some time for that, and a person who waits can interrupt again.
const removeTimeout = 2 * time.Minute

func newRunCommand(a *app) *cobra.Command {
	var open openFlags
	var command commandFlags
	var remove bool
	cmd := &cobra.Command{
		Use:   "run PROVIDER [flags] -- ARGV...",
		Short: "Open a workspace and run a command in it",
		Long: `run opens a workspace, makes it if need be, and runs a command in it. Both
outputs are passed on as they come; the command reads berth's own input, unless
that is a terminal. Its exit code is berth's. The ref is told on stderr.

Arguments reach the command as they are; nothing is a shell's, but with --shell.
The workspace stays, unless --rm is given.`,
		Example: `  berth run local -- uname -a
  berth run local --rm --shell -- 'echo "$HOME" | wc -c'
  berth run docker --name build --set image=golang:1.26 -e CI=1 --timeout 10m -- go test ./...
  tar c src | berth run docker --ref-file ref -- tar x`,
		Args:              oneAndCommand("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := open.options()
			if err != nil {
				return usage(cmd, err)
			}
			c, err := await(a.ended, 0, func() (workspace.Command, error) { return command.command(args[1:]) })
			if err != nil {
				return usage(cmd, err)
			}
			return a.runIn(cmd.Context(), args[0], &open, opts, c, remove)
		},
	}
	open.add(cmd)
	command.add(cmd)
	cmd.Flags().BoolVar(&remove, "rm", false, "destroy the workspace afterwards, whatever becomes of the command")
	return cmd
}

func (a *app) runIn(ctx context.Context, provider string, flags *openFlags, opts []workspace.Option, c workspace.Command, remove bool) (err error) {
	a.connect(&c)
	if err := c.Validate(); err != nil {
		return err // before a workspace is made for nothing
	}
	o, err := a.begin(provider, flags, opts)
	if err != nil {
		return err
	}
	defer func() {
		if remove {
			err = a.also(err, o.remove(ctx, err))
		}
		err = a.also(err, o.end())
	}()
	ref, _, err := o.open(ctx)
	if err == nil {
		err = o.tell(ref)
	}
	if err != nil {
		return err
	}
	return a.runCommand(ctx, ref, o.ws, c)
}

// connect gives a command berth's own streams.
func (a *app) connect(c *workspace.Command) {
	c.Stdin, c.Stdout, c.Stderr = a.commandStdin(), a.stdout, a.stderr
}

// runCommand runs a connected command.
func (a *app) runCommand(ctx context.Context, ref workspace.Ref, ws workspace.Workspace, c workspace.Command) error {
	result, err := ws.Run(ctx, c)
	if err != nil {
		return in(ref, err)
	}
	if result.ExitCode != 0 {
		return &codeError{result.ExitCode}
	}
	return nil
}
