package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newSuspendCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "suspend REF...",
		Short: "Stop workspaces and keep their files",
		Long: `suspend ends what runs in workspaces, so that they cost no more than their files;
the next command or file operation starts them again. One that is stopped already
is fine.`,
		Example:           `  berth suspend docker/berth-3f62a91c0d5e4b78`,
		Args:              atLeastOne("REF"),
		ValidArgsFunction: a.completeRefs,
		RunE: func(cmd *cobra.Command, args []string) error {
			refs, err := parseRefs(cmd, args)
			if err != nil {
				return err
			}
			return a.suspend(cmd.Context(), refs)
		},
	}
}

func (a *app) suspend(ctx context.Context, refs []workspace.Ref) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		errs = append(errs, h.Stop(ctx, ref))
	}
	return errors.Join(errs...)
}
