package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/cmd/berth/internal/settings"
	"github.com/berth-dev/berth/shared/workspace"
)

// filterFlags choose among workspaces.
type filterFlags struct {
	labels    []string
	olderThan durationFlag
}

func (f *filterFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "only with this label `KEY=VALUE` (repeatable: with all of them)")
	cmd.Flags().Var(&f.olderThan, "older-than", "only made at least this `TIME` ago, such as 12h or 7d")
	fixCompletion(cmd, "label")
	fixCompletion(cmd, "older-than")
}

// options reads what was given. The error is one of usage.
func (f *filterFlags) options() (workspace.ListOptions, error) {
	labels, err := settings.Labels(f.labels)
	if err != nil {
		return workspace.ListOptions{}, fmt.Errorf("--label: %w", err)
	}
	return workspace.ListOptions{Labels: labels, OlderThan: f.olderThan.Duration}, nil
}

func newPsCommand(a *app) *cobra.Command {
	var filter filterFlags
	var format display.Format
	cmd := &cobra.Command{
		Use:   "ps [PROVIDER...] [flags]",
		Short: "List workspaces",
		Long: `ps lists the workspaces that the providers made, of all of them or of those that
are named. One that cannot be asked is told on stderr, beside what the others say.`,
		Example: `  berth ps
  berth ps docker --label team=blue --older-than 7d
  berth ps local -o name | xargs berth destroy`,
		ValidArgsFunction: a.completeProviders,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := filter.options()
			if err != nil {
				return usage(cmd, err)
			}
			return a.ps(cmd.Context(), args, opts, format)
		},
	}
	filter.add(cmd)
	addFormat(cmd, &format)
	return cmd
}

func (a *app) ps(ctx context.Context, providers []string, opts workspace.ListOptions, format display.Format) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	infos, err := a.list(ctx, h, providers, opts)
	return errors.Join(err, display.List(a.stdout, format, workspaceHeading, workspaceRows(infos, time.Now())))
}
