package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
)

func newStatCommand(a *app) *cobra.Command {
	var asJSON, follow bool
	cmd := &cobra.Command{
		Use:   "stat REF:PATH [flags]",
		Short: "Tell what a file is",
		Long:  `stat tells about a file or folder; about a link itself, or with -L about what it leads to.`,
		Example: `  berth stat local/berth-3f62a91c0d5e4b78:notes.txt
  berth stat -L local/build:latest -o json`,
		Args:              exactly("REF:PATH"),
		ValidArgsFunction: a.completeRefPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := parseRefPaths(cmd, args)
			if err != nil {
				return err
			}
			return a.stat(cmd.Context(), paths[0], follow, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&follow, "dereference", "L", false, "tell about what a link leads to")
	addJSON(cmd, &asJSON)
	return cmd
}

func (a *app) stat(ctx context.Context, p refPath, follow, asJSON bool) error {
	ws, err := a.attach(p.ref)
	if err != nil {
		return err
	}
	stat := ws.Lstat
	if follow {
		stat = ws.Stat
	}
	info, err := stat(ctx, p.path)
	if err != nil {
		return in(p.ref, err)
	}
	if asJSON {
		return display.Object(a.stdout, display.NewFile(info))
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	line := func(key, value string) { fmt.Fprintf(table, "%s:\t%s\n", key, value) }
	line("name", display.Name(info.Name))
	line("type", display.FileType(info.Mode))
	line("size", strconv.FormatInt(info.Size, 10))
	line("mode", display.Permissions(info.Mode))
	if !info.ModTime.IsZero() {
		line("modified", info.ModTime.Local().Format(time.RFC3339Nano))
	}
	if info.Link {
		line("target", display.Name(info.Target))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprint(a.stdout, text.String())
	return err
}
