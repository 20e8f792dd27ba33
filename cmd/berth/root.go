package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `berth gives an agent a place to work: it opens workspaces at providers, runs
commands in them, moves files in and out, and finds them again by their refs.

Each provider is a plugin process of its own. Which there are says berth.yaml:
the file of -c, else ./berth.yaml, else that in the folder berth of the user's
configuration folder; without one, every plugin that is found beside berth is a
provider of its own name. A ref such as local/berth-3f62a91c0d5e4b78 is the only
way back to a workspace.

Exit codes: a command's own; 2 usage; 124 a command's timeout; 125 berth's own
failure; 128+N after signal N, so 130 after Ctrl-C, which stops the command's
whole tree (a second one does not wait for it); 141 when nobody reads the output.`

// Groups of commands in the help.
const (
	groupWork    = "work"
	groupFiles   = "files"
	groupOperate = "operate"
)

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Places for agents to work",
		Long:  rootLong,
		Example: `  berth run local -- uname -a
  berth exec local/berth-3f62a91c0d5e4b78 -- ls -l
  berth cp ./src local/berth-3f62a91c0d5e4b78:src`,
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // ours has examples
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	flags := root.PersistentFlags()
	flags.StringVarP(&a.configFile, "config", "c", "", "configuration `FILE` (default ./berth.yaml, then the user's, then built in)")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log on stderr what berth and its plugins do")
	cobra.CheckErr(root.MarkPersistentFlagFilename("config", "yaml", "yml"))

	root.AddGroup(
		&cobra.Group{ID: groupWork, Title: "Work in workspaces:"},
		&cobra.Group{ID: groupFiles, Title: "Files in workspaces:"},
		&cobra.Group{ID: groupOperate, Title: "Look after workspaces and providers:"},
	)
	addGroup(root, groupWork, newRunCommand(a), newOpenCommand(a), newExecCommand(a),
		newRunsCommand(a), newAttachCommand(a), newStopCommand(a))
	addGroup(root, groupFiles, newLsCommand(a), newCatCommand(a), newStatCommand(a), newMkdirCommand(a),
		newRmCommand(a), newMvCommand(a), newCpCommand(a))
	addGroup(root, groupOperate, newPsCommand(a), newPruneCommand(a), newSuspendCommand(a), newDestroyCommand(a),
		newProvidersCommand(a), newWhyCommand(a), newReloadCommand(a), newLogLevelCommand(a), newConfigCommand(a), newPluginCommand(a), newLockCommand(a), newServeCommand(a))
	root.AddCommand(newVersionCommand(a), newCompletionCommand(a))
	root.SetHelpCommand(newHelpCommand())
	mend(a, root)
	return root
}

func addGroup(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, cmd := range commands {
		cmd.GroupID = id
		root.AddCommand(cmd)
	}
}

// mend is the one place where cobra's ways are made ours: a is told when a
// command's own work begins, so that whatever fails before is known for an error
// in the command line; and a command that only has subcommands refuses what is
// none of them, where cobra would print its help and succeed.
func mend(a *app, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		mend(a, sub)
	}
	switch work := cmd.RunE; {
	case work != nil:
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.began = true
			return work(cmd, args)
		}
	case cmd.HasParent() && cmd.HasSubCommands():
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			var names []string
			for _, sub := range cmd.Commands() {
				names = append(names, sub.Name())
			}
			want := strings.Join(names, ", ")
			if len(args) == 0 {
				return fmt.Errorf("%s needs a subcommand: %s", cmd.CommandPath(), want)
			}
			return fmt.Errorf("unknown command %q of %s: want %s", args[0], cmd.CommandPath(), want)
		}
	}
}

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Tell about a command",
		Example: "  berth help run",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("unknown command %q: berth --help lists them", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
