package main

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/admin"
	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
)

func newProvidersCommand(a *app) *cobra.Command {
	var format display.Format
	var socket adminSocketFlag
	var running, start bool
	cmd := &cobra.Command{
		Use:   "providers [flags]",
		Short: "List the providers, and how each is",
		Long: `providers asks the berth serve of this configuration, if one runs, how its plugins
are: the state of each, how often it was restarted, the calls that it has, the older
processes that finish theirs, and what last went wrong.

If none runs, it starts the plugin of every configured provider itself, and lists
its version, binary and state. One that does not start is listed with its error;
berth config check fails on it.`,
		Example: `  berth providers
  berth providers --running -o name
  berth providers --start -o json | jq '.[] | select(.error)'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if start {
				return a.providers(cmd.Context(), format)
			}
			client, err := a.reach(cmd.Context(), socket)
			if notServing(err) && !running {
				return a.providers(cmd.Context(), format)
			}
			if err != nil {
				return err
			}
			defer client.Close()
			return a.runningProviders(cmd.Context(), client, format)
		},
	}
	cmd.Flags().BoolVar(&running, "running", false, "ask the berth serve that runs, and fail if none does")
	cmd.Flags().BoolVar(&start, "start", false, "start each plugin, whether a berth serve runs or not")
	cmd.MarkFlagsMutuallyExclusive("running", "start")
	socket.add(cmd)
	addFormat(cmd, &format)
	return cmd
}

// runningProviders lists the providers as a serve has them.
func (a *app) runningProviders(ctx context.Context, client *admin.Client, format display.Format) error {
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	if format == display.Table {
		a.sayServe(client)
	}
	heading := []string{"NAME", "PLUGIN", "VERSION", "STATE", "PID", "RESTARTS", "CALLS", "LEAVING", "DIGEST", "ERROR"}
	rows := make([]display.Row, len(status.Providers))
	for i, st := range status.Providers {
		rows[i] = display.Row{Name: st.Name, Object: st, Cells: []string{
			st.Name, cell(st.Plugin), cell(st.Version), cell(st.State), number(st.PID), strconv.Itoa(st.Restarts), strconv.Itoa(st.InFlight),
			strconv.Itoa(st.Leaving), cell(digest(st)), cell(trouble(st)),
		}}
	}
	return display.List(a.stdout, format, heading, rows)
}

// trouble is what an operator should know first.
func trouble(st host.ProviderStatus) string {
	switch {
	case st.Quarantine != "":
		return "quarantined: " + st.Quarantine
	case st.SwapError != "":
		return "not swapped: " + st.SwapError
	}
	return st.LastError
}

// number is empty in a table where there is none.
func number(n int) string {
	if n == 0 {
		return cell("")
	}
	return strconv.Itoa(n)
}

// providers starts every plugin.
func (a *app) providers(ctx context.Context, format display.Format) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	checked := checkAll(ctx, h)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	heading := []string{"NAME", "PLUGIN", "VERSION", "STATE", "DIGEST", "PATH", "ERROR"}
	rows := make([]display.Row, len(checked))
	for i, c := range checked {
		rows[i] = display.Row{
			Name: c.Name,
			Cells: []string{c.Name, cell(c.Plugin), cell(c.Version), cell(c.State), cell(digest(c.ProviderStatus)), cell(c.Path),
				cell(c.Error)},
			Object: c,
		}
	}
	return display.List(a.stdout, format, heading, rows)
}

// checked is a provider that was started, or why it was not.
type checked struct {
	host.ProviderStatus
	Error string `json:"error,omitempty"`
}

// checkAll starts every provider, all at once.
func checkAll(ctx context.Context, h *host.Host) []checked {
	all := h.Providers()
	result := make([]checked, len(all))
	var wg sync.WaitGroup
	for i, status := range all {
		wg.Go(func() {
			now, err := h.Check(ctx, status.Name)
			if now.Name == "" {
				now = status // it could not be asked at all
			}
			result[i] = checked{ProviderStatus: now}
			if err != nil {
				result[i].Error = err.Error()
			}
		})
	}
	wg.Wait()
	return result
}

// digest says which bytes run, and whether the operator went back to them.
func digest(st host.ProviderStatus) string {
	if st.RolledBackFrom != "" {
		return shortDigest(st.Digest) + " (rolled back)"
	}
	return shortDigest(st.Digest)
}

// shortDigest is enough of a digest to compare by eye.
func shortDigest(digest string) string {
	const enough = 12
	algorithm, hex, ok := strings.Cut(digest, ":")
	if !ok {
		algorithm, hex = "", digest
	}
	if len(hex) > enough {
		hex = hex[:enough]
	}
	if algorithm != "" {
		return algorithm + ":" + hex
	}
	return hex
}
