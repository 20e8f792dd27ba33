package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/admin"
)

func newLogLevelCommand(a *app) *cobra.Command {
	var socket adminSocketFlag
	levels := []string{"trace", "debug", "info", "warn", "error", "off", admin.DefaultLevel}
	cmd := &cobra.Command{
		Use:   "log-level PROVIDER [LEVEL] [flags]",
		Short: "Tell or set what a running berth serve logs of a provider",
		Long: `log-level has the berth serve of this configuration log a provider's records from
LEVEL on: trace, debug, info, warn, error or off, and default for the level that
serve has itself. It holds at once, for the plugin too, and until serve ends; without
LEVEL it is told.`,
		Example: `  berth log-level docker debug
  berth log-level docker default`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return exactly("PROVIDER", "LEVEL")(cmd, args)
			}
			return exactly("PROVIDER")(cmd, args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return levels, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeProvider(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return a.setLogLevel(cmd.Context(), socket, args[0], args[1])
			}
			return a.logLevel(cmd.Context(), socket, args[0])
		},
	}
	socket.add(cmd)
	return cmd
}

func (a *app) logLevel(ctx context.Context, socket adminSocketFlag, provider string) error {
	client, err := a.reach(ctx, socket)
	if err != nil {
		return err
	}
	defer client.Close()
	story, err := client.Story(ctx, provider)
	if err != nil {
		return err
	}
	return a.tellLevel(provider, story.LogLevel)
}

func (a *app) setLogLevel(ctx context.Context, socket adminSocketFlag, provider, level string) error {
	client, err := a.reach(ctx, socket)
	if err != nil {
		return err
	}
	defer client.Close()
	now, warning, err := client.SetLogLevel(ctx, provider, level)
	if err != nil {
		return err
	}
	if warning != "" {
		a.say("warning: %s", warning)
	}
	return a.tellLevel(provider, now)
}

func (a *app) tellLevel(provider string, level admin.LogLevel) error {
	_, err := fmt.Fprintf(a.stdout, "%s: %s\n", provider, levelText(level))
	return err
}

func levelText(level admin.LogLevel) string {
	if level.Own {
		return level.Level
	}
	return level.Level + ", as berth serve has it"
}
