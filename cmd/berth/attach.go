package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newAttachCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "attach REF RUN",
		Short: "Follow a command that runs in a workspace",
		Long: `attach passes on what a run writes, from the oldest that is kept of it, until it
ends; its exit code is berth's. How much was dropped before that is told on
stderr. Ctrl-C ends berth and not a command that was started with --detach.`,
		Example:           `  berth attach docker/build run-3f62a91c0d5e4b78`,
		Args:              exactly("REF", "RUN"),
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := parseRun(cmd, args)
			if err != nil {
				return err
			}
			return a.attachRun(cmd.Context(), ref, args[1])
		},
	}
}

func (a *app) attachRun(ctx context.Context, ref workspace.Ref, id string) error {
	ws, err := a.attach(ref)
	if err != nil {
		return err
	}
	if err := a.opened(ctx, ws); err != nil {
		return err
	}
	// What becomes of it after an interrupt is known before.
	detached := false
	for info, err := range ws.ListRuns(ctx) {
		if err != nil {
			return err
		}
		detached = detached || info.ID == id && info.Detached
	}
	p, err := ws.AttachRun(ctx, id, workspace.AttachOptions{
		Stdout: a.stdout, Stderr: a.stderr,
		OnGap: func(gap *workspace.OutputGapError) error {
			a.say("%v", gap)
			return nil
		},
	})
	if err != nil {
		return err
	}
	result, err := p.Wait()
	switch {
	case err == nil && result.ExitCode != 0:
		return &codeError{result.ExitCode}
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled) && detached:
		a.say("the command goes on: berth attach %s %s follows it, berth stop %s %s ends it", ref, id, ref, id)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		a.say("the command was not started with --detach: it is stopped in 10 s unless somebody attaches")
	}
	return in(ref, err)
}
