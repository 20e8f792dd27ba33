package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

func newPruneCommand(a *app) *cobra.Command {
	var filter filterFlags
	var format display.Format
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune [PROVIDER...] --older-than TIME [flags]",
		Short: "Destroy old workspaces",
		Long: `prune destroys the workspaces that ps with the same flags lists, and lists them.
Nobody else cleans up behind you: a workspace lives until it is destroyed. Those of
unknown age stay, unless --older-than is 0.

Without --label it also removes what providers keep beside workspaces and nothing has
used for that long, such as images that they built, and tells it on stderr.`,
		Example: `  berth prune --older-than 7d --dry-run
  berth prune docker --older-than 12h --label team=blue`,
		ValidArgsFunction: a.completeProviders,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := filter.options()
			if err == nil && !cmd.Flags().Changed("older-than") {
				err = fmt.Errorf("no --older-than: say how old a workspace must be, as in --older-than 7d; 0 means of any age")
			}
			if err != nil {
				return usage(cmd, err)
			}
			return a.prune(cmd.Context(), args, opts, dryRun, format)
		},
	}
	filter.add(cmd)
	addFormat(cmd, &format)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would be destroyed")
	return cmd
}

func (a *app) prune(ctx context.Context, providers []string, opts workspace.ListOptions, dryRun bool, format display.Format) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	infos, listErr := a.list(ctx, h, providers, opts)
	errs := []error{listErr}
	var destroyed []workspace.Info
	for _, info := range infos {
		if !dryRun {
			if err := h.Destroy(ctx, info.Ref); err != nil {
				errs = append(errs, err)
				if ctx.Err() != nil {
					break
				}
				continue
			}
		}
		destroyed = append(destroyed, info)
	}
	errs = append(errs, display.List(a.stdout, format, workspaceHeading, workspaceRows(destroyed, time.Now())))
	if len(opts.Labels) == 0 && ctx.Err() == nil {
		errs = append(errs, a.sweep(ctx, h, providers, workspace.SweepOptions{DryRun: dryRun, OlderThan: opts.OlderThan}))
	}
	return errors.Join(errs...)
}

// sweep has each provider remove what it keeps beside its workspaces.
func (a *app) sweep(ctx context.Context, h *host.Host, providers []string, opts workspace.SweepOptions) error {
	named := len(providers) > 0
	if !named {
		for _, status := range h.Providers() {
			providers = append(providers, status.Name)
		}
	}
	verb := "removed"
	if opts.DryRun {
		verb = "would remove"
	}
	var errs []error
	for _, provider := range providers {
		leftovers, err := h.Sweep(ctx, provider, opts)
		switch {
		case err == nil, !named && a.leftOut(err), errors.Is(err, errors.ErrUnsupported): // list has told it
		default:
			errs = append(errs, err)
		}
		for _, l := range leftovers {
			a.say("%s %s %s of %s", verb, l.Kind, l.Name, provider)
		}
	}
	return errors.Join(errs...)
}
