package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/shared/workspace"
)

func newDestroyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "destroy REF...",
		Short: "End workspaces, with all that is in them",
		Long: `destroy ends workspaces for good, with their files and the commands that run in
them. One that is gone already is fine.`,
		Example:           `  berth destroy local/berth-3f62a91c0d5e4b78 state/notes`,
		Args:              atLeastOne("REF"),
		ValidArgsFunction: a.completeRefs,
		RunE: func(cmd *cobra.Command, args []string) error {
			refs, err := parseRefs(cmd, args)
			if err != nil {
				return err
			}
			return a.destroy(cmd.Context(), refs)
		},
	}
}

// parseRefs reads the arguments of a command that takes refs alone.
func parseRefs(cmd *cobra.Command, args []string) ([]workspace.Ref, error) {
	refs := make([]workspace.Ref, len(args))
	for i, arg := range args {
		var err error
		if refs[i], err = workspace.ParseRef(arg); err != nil {
			return nil, usage(cmd, err)
		}
	}
	return refs, nil
}

func (a *app) destroy(ctx context.Context, refs []workspace.Ref) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		errs = append(errs, h.Destroy(ctx, ref))
	}
	return errors.Join(errs...)
}
