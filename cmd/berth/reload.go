package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/admin"
	"github.com/berth-dev/berth/cmd/berth/internal/display"
)

func newReloadCommand(a *app) *cobra.Command {
	var socket adminSocketFlag
	var format display.Format
	cmd := &cobra.Command{
		Use:   "reload [PROVIDER...] [flags]",
		Short: "Have a running berth serve swap plugins for what is installed now",
		Long: `reload has the berth serve of this configuration swap the plugins of the named
providers for the binaries that stand in the plugin folders now. A new one is
started beside the old one, and gets calls when it has taken its configuration; the
old one finishes those that it has. One that does not come so far leaves the old one
serving: reload then says why, and fails.

Without names it does so for every plugin that runs, or has failed; one that cannot
be swapped, since its workspaces would end with it, is kept. SIGHUP to berth serve
does the same. The configuration is not read again: that takes a restart.`,
		Example: `  berth reload
  berth reload docker -o json
  berth -c /etc/berth/berth.yaml reload`,
		ValidArgsFunction: a.completeProviders,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reload(cmd.Context(), socket, args, format)
		},
	}
	socket.add(cmd)
	addFormat(cmd, &format)
	return cmd
}

func (a *app) reload(ctx context.Context, socket adminSocketFlag, names []string, format display.Format) error {
	client, err := a.reach(ctx, socket)
	if err != nil {
		return err
	}
	defer client.Close()
	list, err := client.Reload(ctx, names)
	if err != nil {
		return err
	}
	heading := []string{"NAME", "OUTCOME", "VERSION", "PID", "DIGEST", "REASON"}
	rows := make([]display.Row, len(list))
	refused := 0
	for i, r := range list {
		if r.Outcome == admin.Refused {
			refused++
		}
		rows[i] = display.Row{Name: r.Provider, Object: r, Cells: []string{
			r.Provider, string(r.Outcome), cell(change(r.Before.Version, r.After.Version)), cell(change(pid(r.Before), pid(r.After))),
			cell(change(shortDigest(r.Before.Digest), shortDigest(r.After.Digest))), cell(r.Reason),
		}}
	}
	if err := display.List(a.stdout, format, heading, rows); err != nil {
		return err
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d plugins were not swapped: berth why tells more", refused, len(list))
	}
	return nil
}

func pid(p admin.Process) string {
	if p.PID == 0 {
		return ""
	}
	return strconv.Itoa(p.PID)
}

// change shows what was before and what is now, and that only once which did not
// change.
func change(before, after string) string {
	if before == after {
		return after
	}
	known := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	return known(before) + " -> " + known(after)
}

// sayReloaded tells what came of a reload that nobody waits for.
func (a *app) sayReloaded(list []admin.Reloaded) {
	for _, r := range list {
		text := fmt.Sprintf("reload: %s: %s", r.Provider, r.Outcome)
		if v := change(r.Before.Version, r.After.Version); v != "" {
			text += ", version " + v
		}
		if p := change(pid(r.Before), pid(r.After)); p != "" {
			text += ", pid " + p
		}
		if r.Reason != "" {
			text += ": " + r.Reason
		}
		a.say("%s", text)
	}
}
