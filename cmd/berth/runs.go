package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/shared/workspace"
)

// runDetached starts a connected command and leaves it. What it has written by
// then is left to whoever attaches: nothing is taken here.
func (a *app) runDetached(ctx context.Context, ws workspace.Workspace, c workspace.Command) error {
	unread, w := io.Pipe()
	c.Stdin, c.Stdout, c.Stderr = nil, w, w
	// An interrupt stops the command until it has started, and not after.
	startCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	interrupted := context.AfterFunc(ctx, cancel)
	p, err := ws.Start(startCtx, c)
	if !interrupted() && err == nil {
		_, err = p.Wait()
	}
	if err == nil {
		_, err = fmt.Fprintln(a.stdout, p.ID())
	}
	// The pipe's end would be a writer that fails: the host lets go first.
	err = a.also(err, a.closeHost())
	return a.also(err, unread.Close())
}

func newRunsCommand(a *app) *cobra.Command {
	var format display.Format
	cmd := &cobra.Command{
		Use:   "runs REF [flags]",
		Short: "List the commands that run in a workspace",
		Long: `runs lists the commands of a workspace that can be attached: those that are
going, and those that ended within the last ten minutes and whose exit code nobody
has asked for yet.`,
		Example: `  berth runs docker/build
  berth runs docker/build -o name | xargs -n 1 berth stop docker/build`,
		Args:              exactly("REF"),
		ValidArgsFunction: a.completeRef,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := workspace.ParseRef(args[0])
			if err != nil {
				return usage(cmd, err)
			}
			return a.runs(cmd.Context(), ref, format)
		},
	}
	addFormat(cmd, &format)
	return cmd
}

func (a *app) runs(ctx context.Context, ref workspace.Ref, format display.Format) error {
	ws, err := a.attach(ref)
	if err != nil {
		return err
	}
	infos, err := listRuns(ctx, ws)
	if err != nil {
		return err
	}
	return display.List(a.stdout, format, []string{"RUN", "STATE", "AGE", "COMMAND"}, runRows(infos, time.Now()))
}

// listRuns returns the runs of a workspace, the oldest first.
func listRuns(ctx context.Context, ws workspace.Workspace) ([]workspace.RunInfo, error) {
	var infos []workspace.RunInfo
	for info, err := range ws.ListRuns(ctx) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b workspace.RunInfo) int {
		if c := a.Started.Compare(b.Started); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return infos, nil
}

// commandCell is how much of a command a table shows, in bytes.
const commandCell = 60

func runRows(infos []workspace.RunInfo, now time.Time) []display.Row {
	rows := make([]display.Row, len(infos))
	for i, info := range infos {
		state := "running"
		switch {
		case info.Ended:
			state = "ended"
		case info.Detached:
			state = "detached"
		}
		rows[i] = display.Row{
			Name:   info.ID,
			Cells:  []string{info.ID, state, age(info.Started, now), commandText(info)},
			Object: runObject(info),
		}
	}
	return rows
}

func commandText(info workspace.RunInfo) string {
	words := []string{info.Script}
	if len(info.Args) > 0 {
		words = slices.Clone(info.Args)
	}
	for i, word := range words {
		if words[i] = display.Name(word); words[i] == word && len(words) > 1 && strings.Contains(word, " ") {
			words[i] = strconv.Quote(word) // where it begins and ends
		}
	}
	return cut(strings.Join(words, " "), commandCell)
}

func runObject(info workspace.RunInfo) any {
	object := struct {
		Run       string     `json:"run"`
		Detached  bool       `json:"detached"`
		Ended     bool       `json:"ended"`
		Started   *time.Time `json:"started,omitempty"`
		Args      []string   `json:"args,omitempty"`
		ArgsB64   [][]byte   `json:"args_b64,omitempty"` // if one of them is not UTF-8
		Script    string     `json:"script,omitempty"`
		ScriptB64 []byte     `json:"script_b64,omitempty"`
	}{Run: info.ID, Detached: info.Detached, Ended: info.Ended, Args: info.Args, Script: info.Script, ScriptB64: display.Inexact(info.Script)}
	if !info.Started.IsZero() {
		started := info.Started.UTC()
		object.Started = &started
	}
	if slices.ContainsFunc(info.Args, func(arg string) bool { return display.Inexact(arg) != nil }) {
		for _, arg := range info.Args {
			object.ArgsB64 = append(object.ArgsB64, []byte(arg))
		}
	}
	return object
}

func newStopCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop REF RUN",
		Short: "Stop a command that runs in a workspace",
		Long: `stop ends a run's whole process tree: TERM, and two seconds later KILL. One that
has ended already is fine. How it ended is told to whoever is attached.`,
		Example:           `  berth stop docker/build run-3f62a91c0d5e4b78`,
		Args:              exactly("REF", "RUN"),
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := parseRun(cmd, args)
			if err != nil {
				return err
			}
			ws, err := a.attach(ref)
			if err != nil {
				return err
			}
			return ws.StopRun(cmd.Context(), args[1])
		},
	}
}

// parseRun reads the arguments REF and RUN. The error is one of usage.
func parseRun(cmd *cobra.Command, args []string) (workspace.Ref, error) {
	ref, err := workspace.ParseRef(args[0])
	return ref, usage(cmd, errors.Join(err, workspace.ValidateRunID(args[1])))
}
