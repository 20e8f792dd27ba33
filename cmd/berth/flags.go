package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/cmd/berth/internal/environ"
	"github.com/berth-dev/berth/cmd/berth/internal/settings"
	"github.com/berth-dev/berth/cmd/berth/internal/units"
	"github.com/berth-dev/berth/shared/workspace"
)

// durationFlag is a duration that is read by [units.ParseDuration].
type durationFlag struct{ time.Duration }

func (d *durationFlag) Set(s string) (err error) {
	d.Duration, err = units.ParseDuration(s)
	return err
}

// String is empty for zero, so that the help shows no default of 0s.
func (d *durationFlag) String() string {
	if d.Duration == 0 {
		return ""
	}
	return d.Duration.String()
}

func (d *durationFlag) Type() string { return "duration" }

// sizeFlag is a number of bytes that is read by [units.ParseSize].
type sizeFlag int64

func (s *sizeFlag) Set(text string) error {
	n, err := units.ParseSize(text)
	*s = sizeFlag(n)
	return err
}

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

func (s *sizeFlag) Type() string { return "size" }

func addFormat(cmd *cobra.Command, format *display.Format) {
	*format = display.Table
	cmd.Flags().VarP(format, "output", "o", "how to write it: table, json (exact, for programs), or name")
	fixCompletion(cmd, "output", "table", "json", "name")
}

// addJSON is addFormat for what is no listing.
func addJSON(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().VarP((*jsonFlag)(asJSON), "output", "o", "how to write it: text, or json (exact, for programs)")
	fixCompletion(cmd, "output", "text", "json")
}

type jsonFlag bool

func (j *jsonFlag) Set(s string) error {
	if s != "json" && s != "text" {
		return fmt.Errorf("want text or json")
	}
	*j = s == "json"
	return nil
}

func (j *jsonFlag) String() string {
	if *j {
		return "json"
	}
	return "text"
}

func (j *jsonFlag) Type() string { return "format" }

// openFlags say how a workspace is opened.
type openFlags struct {
	name    string
	set     []string
	labels  []string
	refFile string
}

func (f *openFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "`NAME` of the workspace: made under it at first, and found by it after")
	flags.StringArrayVar(&f.set, "set", nil, "`KEY=VALUE` of the provider's configuration, for this workspace (repeatable; KEY.KEY leads into maps)")
	flags.StringArrayVar(&f.labels, "label", nil, "`KEY=VALUE` to find the workspace by (repeatable)")
	flags.StringVar(&f.refFile, "ref-file", "", "write the ref to `FILE`")
	fixCompletion(cmd, "name")
	fixCompletion(cmd, "set")
	fixCompletion(cmd, "label")
}

// options reads what was given. The error is one of usage.
func (f *openFlags) options() ([]workspace.Option, error) {
	var opts []workspace.Option
	if f.name != "" {
		if err := workspace.ValidateWorkspaceName(f.name); err != nil {
			return nil, fmt.Errorf("--name: %w", err)
		}
		opts = append(opts, workspace.WithName(f.name))
	}
	if len(f.set) > 0 {
		config, err := settings.Config(f.set)
		if err != nil {
			return nil, fmt.Errorf("--set: %w", err)
		}
		opts = append(opts, workspace.WithConfig(config))
	}
	if len(f.labels) > 0 {
		labels, err := settings.Labels(f.labels)
		if err == nil {
			err = workspace.ValidateLabels(labels)
		}
		if err != nil {
			return nil, fmt.Errorf("--label: %w", err)
		}
		opts = append(opts, workspace.WithLabels(labels))
	}
	return opts, nil
}

// commandFlags say how a command is run.
type commandFlags struct {
	env, envFiles []string
	dir           string
	timeout       durationFlag
	outputLimit   sizeFlag
	shell         bool
}

func (f *commandFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.env, "env", "e", nil, "`NAME=VALUE` for the command, or NAME to pass on berth's own (repeatable)")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "`FILE` of such lines; -e comes after (repeatable)")
	flags.StringVarP(&f.dir, "dir", "w", "", "`DIR` in the workspace to start in")
	flags.Var(&f.timeout, "timeout", "stop the command's whole tree after this `TIME`, such as 30s; 0 means none")
	flags.Var(&f.outputLimit, "output-limit", "stop it after this much output, such as `10MiB`; 0 means none")
	flags.BoolVar(&f.shell, "shell", false, "take the one argument for a script of /bin/sh")
	fixCompletion(cmd, "env")
	fixCompletion(cmd, "dir")
	fixCompletion(cmd, "timeout")
	fixCompletion(cmd, "output-limit")
}

// command makes the command of argv. The error is one of usage.
func (f *commandFlags) command(argv []string) (workspace.Command, error) {
	cmd := workspace.Command{Dir: f.dir, Env: map[string]string{}, Timeout: f.timeout.Duration, OutputLimit: int64(f.outputLimit)}
	if cmd.OutputLimit == 0 {
		cmd.OutputLimit = workspace.NoOutputLimit // both streams are passed on
	}
	for _, file := range f.envFiles {
		if err := environ.AddFile(cmd.Env, file, os.LookupEnv); err != nil {
			return cmd, fmt.Errorf("--env-file: %w", err)
		}
	}
	for _, assignment := range f.env {
		if err := environ.Add(cmd.Env, assignment, os.LookupEnv); err != nil {
			return cmd, fmt.Errorf("-e: %w", err)
		}
	}
	if !f.shell {
		cmd.Args = argv
		return cmd, nil
	}
	if len(argv) != 1 || argv[0] == "" {
		return cmd, fmt.Errorf(`--shell takes one script, quoted as a whole, as in --shell -- 'cd src && make | tail'`)
	}
	cmd.Script = argv[0]
	return cmd, nil
}

// oneAndCommand demands one argument, then -- and a command.
func oneAndCommand(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		example := fmt.Sprintf("as in %s %s -- echo hello", cmd.CommandPath(), what)
		switch dash := cmd.ArgsLenAtDash(); {
		case len(args) == 0 || dash == 0:
			return fmt.Errorf("no %s: %s", what, example)
		case dash < 0 && len(args) == 1:
			return fmt.Errorf("no command: %s", example)
		case dash != 1:
			return fmt.Errorf("%q stands before --: the command comes after it, %s", args[1], example)
		case len(args) == 1 || args[1] == "":
			return fmt.Errorf("the command is empty: %s", example)
		}
		return nil
	}
}

// exactly demands arguments by their names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("no %s: want %s", names[len(args)], cmd.UseLine())
		case len(args) > len(names):
			return fmt.Errorf("unexpected %q: want %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// atLeastOne demands arguments of one kind.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("no %s: want %s", name, cmd.UseLine())
		}
		return nil
	}
}

// usage marks an error of a command's own work as one in the command line.
func usage(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return &usageError{command: cmd.CommandPath(), err: err}
}
