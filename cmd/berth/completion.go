package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// completionTimeout is how long a person who pressed Tab waits for refs, which
// may need plugins to start and services to answer.
const completionTimeout = 3 * time.Second

func newCompletionCommand(a *app) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for a shell",
		Example: `  source <(berth completion bash)
  berth completion fish > ~/.config/fish/completions/berth.fish`,
		Args:      cobra.MatchAll(exactly("shell"), cobra.OnlyValidArgs),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			default:
				return root.GenPowerShellCompletionWithDesc(a.stdout)
			}
		},
	}
}

// fixCompletion makes a flag complete to the given words, and never to files.
func fixCompletion(cmd *cobra.Command, flag string, words ...string) {
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// Completions are silent about errors: there is no place to tell them.

// completeProvider completes the first argument to a configured provider.
func (a *app) completeProvider(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeProviders(cmd, args, toComplete)
}

// completeProviders completes every argument to a provider.
func (a *app) completeProviders(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := a.openHost()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, status := range h.Providers() {
		if !slices.Contains(args, status.Name) {
			names = append(names, status.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completePlugin completes the first argument to a plugin that is found.
func (a *app) completePlugin(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	config, err := host.DefaultConfig()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range config.Providers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeRef completes the first argument to a ref.
func (a *app) completeRef(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeRefs(cmd, args, toComplete)
}

// completeRefs completes every argument to a ref.
func (a *app) completeRefs(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	var refs []string
	for _, ref := range a.refs(cmd.Context(), toComplete) {
		if text := ref.String(); !slices.Contains(args, text) {
			refs = append(refs, text)
		}
	}
	return refs, cobra.ShellCompDirectiveNoFileComp
}

// completeRun completes REF, and then RUN to the runs there.
func (a *app) completeRun(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeRefs(cmd, args, toComplete)
	}
	ref, err := workspace.ParseRef(args[0])
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	ws, err := a.attach(ref)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	infos, _ := listRuns(ctx, ws)
	for _, info := range infos {
		ids = append(ids, info.ID)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeRefPath completes the first part of REF:PATH.
func (a *app) completeRefPath(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	if strings.Contains(toComplete, ":") {
		return nil, directive
	}
	var refs []string
	for _, ref := range a.refs(cmd.Context(), toComplete) {
		refs = append(refs, ref.String()+":")
	}
	return refs, directive
}

// completeCp completes refs, and lets the shell complete local files where none
// fits.
func (a *app) completeCp(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	refs, directive := a.completeRefPath(cmd, args, toComplete)
	if len(refs) == 0 && !strings.Contains(toComplete, ":") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return refs, directive
}

// refs lists those that begin with prefix, asking only the provider that it
// names, if it does.
func (a *app) refs(ctx context.Context, prefix string) []workspace.Ref {
	h, err := a.openHost()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	var providers []string
	if provider, _, ok := strings.Cut(prefix, "/"); ok {
		providers = []string{provider}
	}
	a.unasked = false                                              // nobody reads here what is left out
	infos, _ := a.list(ctx, h, providers, workspace.ListOptions{}) // what others cannot tell
	var refs []workspace.Ref
	for _, info := range infos {
		if strings.HasPrefix(info.Ref.String(), prefix) {
			refs = append(refs, info.Ref)
		}
	}
	return refs
}
