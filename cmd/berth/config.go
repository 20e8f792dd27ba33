package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Look after the configuration",
		Example: "  berth config check",
	}
	cmd.AddCommand(newConfigCheckCommand(a))
	return cmd
}

func newConfigCheckCommand(a *app) *cobra.Command {
	var format display.Format
	cmd := &cobra.Command{
		Use:   "check [flags]",
		Short: "Check the configuration, and each provider's against its plugin's schema",
		Long: `check reads the configuration strictly, starts each provider's plugin, and has it
accept its part; the gateway's section is read as well. It fails if anything is
wrong, and makes no workspace.`,
		Example: `  berth config check
  berth -c deploy/berth.yaml config check -o json`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.configCheck(cmd.Context(), format)
		},
	}
	addFormat(cmd, &format)
	return cmd
}

func (a *app) configCheck(ctx context.Context, format display.Format) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	type verdict struct {
		Provider string `json:"provider"`
		Plugin   string `json:"plugin"`
		OK       bool   `json:"ok"`
		Error    string `json:"error,omitempty"`
	}
	var rows []display.Row
	bad := 0
	for _, c := range checkAll(ctx, h) {
		word := "ok"
		if c.Error != "" {
			word = c.Error
			bad++
		}
		rows = append(rows, display.Row{
			Name: c.Name, Cells: []string{c.Name, cell(c.Plugin), display.Name(word)},
			Object: verdict{c.Name, c.Plugin, c.Error == "", c.Error},
		})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = display.List(a.stdout, format, []string{"PROVIDER", "PLUGIN", "CONFIGURATION"}, rows)
	if bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d providers cannot be used as they are configured", bad, len(rows)))
	}
	return errors.Join(err, a.checkGateway())
}
