package main

import (
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
)

// exitDiffers is the code of a comparison that found something.
const exitDiffers = 1

func newLockCommand(a *app) *cobra.Command {
	var format display.Format
	var check bool
	cmd := &cobra.Command{
		Use:   "lock [PLUGIN...] [flags]",
		Short: "Allow the plugins that are installed now, and no others",
		Long: `lock writes berth.lock beside berth.yaml: the digests of the plugins that are named,
or of those of all providers, as they stand in the plugin folders now. From then on
these run, and no others: one whose bytes are not those in the lock does not start.
Each plugin is started to describe itself, and its copy as well. What is locked for
other platforms, and of other plugins, stays.

With --check nothing is started or written: lock tells what differs from the lock
file, and exits with 1 if anything does.`,
		Example: `  berth lock
  berth lock docker
  berth lock --check`,
		ValidArgsFunction: a.completePlugins,
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				return a.checkLock(args, format)
			}
			return a.lock(cmd.Context(), args, format)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only tell what differs, and exit with 1 if anything does")
	addFormat(cmd, &format)
	return cmd
}

func (a *app) lock(ctx context.Context, plugins []string, format display.Format) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	locked, err := h.LockPlugins(ctx, plugins...)
	if err != nil {
		return err
	}
	return a.listLocked(format, locked)
}

func (a *app) listLocked(format display.Format, locked []host.LockedPlugin) error {
	heading := []string{"PLUGIN", "PLATFORM", "VERSION", "PROTOCOL", "DIGEST", "COMPANIONS"}
	rows := make([]display.Row, len(locked))
	for i, l := range locked {
		digest := change(shortDigest(l.Before), shortDigest(l.Digest))
		if l.Before == "" {
			digest = shortDigest(l.Digest)
		}
		rows[i] = display.Row{Name: l.Plugin, Object: l, Cells: []string{
			l.Plugin, l.Platform, cell(l.Version), strconv.Itoa(l.Protocol), cell(digest), companions(l),
		}}
	}
	return display.List(a.stdout, format, heading, rows)
}

// companions is how many were locked, and of how many if some were not there.
func companions(l host.LockedPlugin) string {
	n := strconv.Itoa(len(l.Companions))
	if len(l.Missing) > 0 {
		n += " of " + strconv.Itoa(len(l.Companions)+len(l.Missing))
	}
	return n
}

func (a *app) checkLock(plugins []string, format display.Format) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	differences, err := h.CheckLock(plugins...)
	if err != nil || len(differences) == 0 && format == display.Table {
		return err
	}
	rows := make([]display.Row, len(differences))
	for i, d := range differences {
		rows[i] = display.Row{Name: d.Plugin, Object: d, Cells: []string{d.Plugin, display.Name(d.What)}}
	}
	if err := display.List(a.stdout, format, []string{"PLUGIN", "DIFFERENCE"}, rows); err != nil {
		return err
	}
	if len(differences) > 0 {
		return &codeError{exitDiffers}
	}
	return nil
}

func newPluginRollbackCommand(a *app) *cobra.Command {
	var format display.Format
	cmd := &cobra.Command{
		Use:   "rollback NAME [flags]",
		Short: "Go back to the release of a plugin that was locked before",
		Long: `rollback has the plugin run what was locked before that which stands in the plugin
folder: the release in berth.lock, if another one stands there, or else the one that
was locked before it. It is run from a copy that is kept in the user's cache folder,
whatever stands in the plugin folder, until berth lock goes forward again. A berth
serve that runs follows with berth reload.`,
		Example: `  berth plugin rollback docker
  berth -c /etc/berth/berth.yaml plugin rollback docker`,
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completePlugin,
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := a.openHost()
			if err != nil {
				return err
			}
			locked, err := h.RollbackPlugin(args[0])
			if err != nil {
				return err
			}
			return a.listLocked(format, []host.LockedPlugin{locked})
		},
	}
	addFormat(cmd, &format)
	return cmd
}

// completePlugins completes every argument to a plugin that is found.
func (a *app) completePlugins(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	names, directive := a.completePlugin(cmd, nil, toComplete)
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
}
