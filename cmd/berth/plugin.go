package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

func newPluginCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "plugin",
		Short:   "Tell about plugins, and change which release of one runs",
		Example: "  berth plugin schema state\n  berth plugin rollback state",
	}
	cmd.AddCommand(newPluginSchemaCommand(a), newPluginDiffCommand(a), newPluginRollbackCommand(a))
	return cmd
}

func newPluginSchemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema NAME",
		Short: "Print the JSON Schema of a plugin's configuration",
		Long: `schema starts the plugin berth-provider-NAME, whether a provider uses it or not,
and prints the JSON Schema of the config: that a provider of it may have.`,
		Example:           "  berth plugin schema state",
		Args:              exactly("NAME"),
		ValidArgsFunction: a.completePlugin,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pluginSchema(cmd.Context(), args[0])
		},
	}
}

func (a *app) pluginSchema(ctx context.Context, plugin string) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	schema, err := h.Schema(ctx, plugin)
	if err != nil {
		return err
	}
	// Re-indented, which also makes sure that a terminal gets nothing else.
	var text bytes.Buffer
	if err := json.Indent(&text, schema, "", "  "); err != nil {
		return fmt.Errorf("plugin %s: its schema is not JSON: %w", plugin, err)
	}
	_, err = fmt.Fprintln(a.stdout, text.String())
	return err
}
