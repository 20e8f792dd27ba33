package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
)

func newPluginDiffCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff NAME NEWBINARY [flags]",
		Short: "Tell how another binary of a plugin differs, and what it would break",
		Long: `diff starts the plugin that is installed, and another binary of it, to describe
themselves, and shows what differs: protocol, version, features, environment, and
the keys of the configuration. Neither is configured. If the present configuration
has keys that the new binary would not take, diff lists them and exits with 1.`,
		Example: `  berth plugin diff docker ./berth-provider-docker
  berth plugin diff docker /tmp/berth-provider-docker -o json`,
		Args: exactly("NAME", "NEWBINARY"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completePlugin(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pluginDiff(cmd.Context(), args[0], args[1], asJSON)
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func (a *app) pluginDiff(ctx context.Context, plugin, binary string, asJSON bool) error {
	h, err := a.openHost()
	if err != nil {
		return err
	}
	diff, err := h.ComparePlugin(ctx, plugin, binary)
	if err != nil {
		return err
	}
	if asJSON {
		err = display.Object(a.stdout, diff)
	} else {
		err = writeDiff(a.stdout, diff)
	}
	if err == nil && len(diff.Breaks) > 0 {
		err = &codeError{exitDiffers}
	}
	return err
}

func writeDiff(w io.Writer, d host.PluginDiff) error {
	out := bufio.NewWriter(w)
	line := func(name, value string) { fmt.Fprintf(out, "%-13s%s\n", name+":", cell(value)) }
	line("binary", change(d.Old.Path, d.New.Path))
	line("digest", change(shortDigest(d.Old.Digest), shortDigest(d.New.Digest)))
	line("plugin", change(d.Old.Name, d.New.Name))
	line("version", change(d.Old.Version, d.New.Version))
	line("protocol", change(strconv.Itoa(d.Old.Protocol), strconv.Itoa(d.New.Protocol)))
	line("features", listChanges(d.Features))
	line("environment", listChanges(d.Environment))
	line("companions", listChanges(d.Companions))
	if len(d.Schema) == 0 {
		line("schema", "unchanged")
	} else {
		fmt.Fprintln(out, "schema:")
	}
	for _, c := range d.Schema {
		sign := map[string]string{host.KeyAdded: "+", host.KeyRemoved: "-", host.KeyChanged: "~"}[c.Kind]
		fmt.Fprintf(out, "  %s %s\n", sign, display.Name(c.Key+aspects(c)))
	}
	if len(d.Breaks) == 0 {
		line("breaks", "nothing of this configuration")
		return out.Flush()
	}
	fmt.Fprintln(out, "breaks:")
	for _, b := range d.Breaks {
		fmt.Fprintf(out, "  %s\n", display.Name(breakText(b)))
	}
	return out.Flush()
}

func listChanges(c host.Changes) string {
	var words []string
	for _, name := range c.Added {
		words = append(words, "+"+name)
	}
	for _, name := range c.Removed {
		words = append(words, "-"+name)
	}
	if len(words) == 0 {
		return "unchanged"
	}
	return strings.Join(words, " ")
}

// aspects tells how a key of the configuration differs.
func aspects(c host.SchemaChange) string {
	var parts []string
	for _, aspect := range c.Aspects {
		switch c.Kind {
		case host.KeyAdded:
			parts = append(parts, fmt.Sprintf("%s %s", aspect.Name, aspect.New))
		case host.KeyChanged:
			parts = append(parts, fmt.Sprintf("%s %s", aspect.Name, change(string(aspect.Old), string(aspect.New))))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// breakText is written as an error of the configuration is.
func breakText(b host.Break) string {
	text := ""
	if b.File != "" {
		text = b.File + ":"
		if b.Line > 0 {
			text += fmt.Sprintf("%d:", b.Line)
		}
		text += " "
	}
	if b.Key != "" {
		text += b.Key + ": "
	}
	return text + b.Reason
}
