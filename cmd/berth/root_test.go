package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command says in its help what it does, and how it is used.
func TestEveryCommandHasAnExample(t *testing.T) {
	a, _, _ := newTestApp(t, nil)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s: no description or no example", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if !strings.HasPrefix(line, "  ") || !strings.Contains(line, "berth") {
				t.Errorf("%s: the example %q is not an indented command line of berth", cmd.CommandPath(), line)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	root := newRootCommand(a)
	root.InitDefaultHelpCmd()
	check(root)
}

// The examples are right: the flags that they use are there, and their
// arguments are as many as the command takes.
func TestExamplesAreCommandLines(t *testing.T) {
	a, _, _ := newTestApp(t, nil)
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			args := berthArguments(line)
			root := newRootCommand(a) // flags keep what was parsed
			found, rest, err := root.Find(args)
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err == nil && found.Args != nil {
				err = found.Args(found, found.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: the example %q: %v", cmd.CommandPath(), line, err)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRootCommand(a))
}

// berthArguments takes the arguments of berth out of a shell's line, which is
// written plainly enough in examples.
func berthArguments(line string) []string {
	var args []string
	began, quoted := false, ""
	for _, word := range strings.Fields(line) {
		word = strings.Trim(word, "()$")
		switch {
		case !began:
			began = strings.HasSuffix(word, "berth")
			continue
		case quoted != "":
			quoted += " " + word
		case strings.HasPrefix(word, "'"):
			quoted = word
		case word == "|" || word == ">":
			return args
		default:
			args = append(args, word)
			continue
		}
		if strings.HasSuffix(quoted, "'") {
			args, quoted = append(args, quoted), ""
		}
	}
	return args
}
