package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/shared/wire"
)

func newVersionCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Tell berth's version, and the plugin protocol that it speaks",
		Example: `  berth version
  berth version -o json`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.version(asJSON) },
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func (a *app) version(asJSON bool) error {
	v := struct {
		Version  string `json:"version"`
		Commit   string `json:"commit,omitempty"`
		Go       string `json:"go"`
		Platform string `json:"platform"`
		Protocol int    `json:"protocol"`
	}{version, commit(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, wire.ProtocolV1}
	if asJSON {
		return display.Object(a.stdout, v)
	}
	_, err := fmt.Fprintf(a.stdout, "berth %s\ncommit:   %s\ngo:       %s\nplatform: %s\nprotocol: berth.v%d\n",
		v.Version, cell(v.Commit), v.Go, v.Platform, v.Protocol)
	return err
}

// commit is what berth was built from, as far as the build tells.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				modified = "-modified"
			}
		}
	}
	if revision == "" {
		return ""
	}
	return revision + modified
}
