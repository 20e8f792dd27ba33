package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/shared/workspace"
)

func newOpenCommand(a *app) *cobra.Command {
	var open openFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "open PROVIDER [flags]",
		Short: "Open a workspace and print its ref",
		Long: `open makes a workspace, or finds the one of --name, and prints its ref. It costs
what the provider's workspace costs until berth destroy ends it.`,
		Example: `  ref=$(berth open local)
  berth open state --name notes --label team=blue -o json`,
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := open.options()
			if err != nil {
				return usage(cmd, err)
			}
			return a.open(cmd.Context(), args[0], &open, opts, asJSON)
		},
	}
	open.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}

func (a *app) open(ctx context.Context, provider string, flags *openFlags, opts []workspace.Option, asJSON bool) (err error) {
	o, err := a.begin(provider, flags, opts)
	if err != nil {
		return err
	}
	defer func() { err = a.also(err, o.end()) }()
	ref, dir, err := o.open(ctx)
	if err != nil {
		return err
	}
	o.told = true // on stdout
	if o.file != nil {
		if err := o.tell(ref); err != nil {
			return err
		}
	}
	if asJSON {
		return display.Object(a.stdout, struct {
			Ref        string `json:"ref"`
			Provider   string `json:"provider"`
			ID         string `json:"id"`
			WorkingDir string `json:"working_dir"`
		}{ref.String(), ref.Provider, ref.ID, dir})
	}
	_, err = fmt.Fprintln(a.stdout, ref)
	return err
}
