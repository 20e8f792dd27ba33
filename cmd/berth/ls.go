package main

import (
	"context"
	"errors"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/shared/workspace"
)

func newLsCommand(a *app) *cobra.Command {
	var format display.Format
	cmd := &cobra.Command{
		Use:   "ls REF[:PATH] [flags]",
		Short: "List a folder",
		Long: `ls lists a folder of a workspace, sorted by name, or one file. Names that hold
more than plain text are quoted; -o json has them exactly: one that is not UTF-8
has its bytes in name_b64. Type, size and mode are those of what a link leads to.`,
		Example: `  berth ls local/berth-3f62a91c0d5e4b78
  berth ls local/build:src -o json | jq -r '.[].name'`,
		Args:              exactly("REF[:PATH]"),
		ValidArgsFunction: a.completeRefPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := parseRefOrPath(cmd, args[0])
			if err != nil {
				return err
			}
			return a.ls(cmd.Context(), p, format)
		},
	}
	addFormat(cmd, &format)
	return cmd
}

func (a *app) ls(ctx context.Context, p refPath, format display.Format) error {
	ws, err := a.attach(p.ref)
	if err != nil {
		return err
	}
	infos, err := ws.ReadDir(ctx, p.path)
	var rows []display.Row
	if errors.Is(err, syscall.ENOTDIR) {
		var info workspace.FileInfo
		if info, err = ws.Lstat(ctx, p.path); err == nil {
			rows = append(rows, display.FileRow(p.path, info))
		}
	}
	if err != nil {
		return in(p.ref, err)
	}
	for _, info := range infos {
		rows = append(rows, display.FileRow(info.Name, info))
	}
	return display.List(a.stdout, format, display.FileHeading, rows)
}
