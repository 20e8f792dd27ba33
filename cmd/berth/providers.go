package main

import (
	"context"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
)

func newProvidersCommand(a *app) *cobra.Command {
	var format display.Format
	cmd := &cobra.Command{
		Use:   "providers [flags]",
		Short: "List the providers and start each to see how it is",
		Long: `providers starts the plugin of every configured provider, and lists its version,
binary and state. One that does not start is listed with its error; berth config
check fails on it.`,
		Example: `  berth providers
  berth providers -o json | jq '.[] | select(.error)'`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.providers(cmd.Context(), format)
		},
	}
	addFormat(cmd, &format)
	return cmd
}

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
			Cells: []string{c.Name, cell(c.Plugin), cell(c.Version), cell(c.State), cell(shortDigest(c.Digest)), cell(c.Path),
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
