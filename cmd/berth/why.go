package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/admin"
	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
)

func newWhyCommand(a *app) *cobra.Command {
	var socket adminSocketFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why PROVIDER [flags]",
		Short: "Tell why a provider's plugin is as it is",
		Long: `why asks the berth serve of this configuration about one provider: which binary
runs and why that one (where it was looked for, what is locked or rolled back), which
version, why it is in the state that it is in, and what happened to it lately:
starts, deaths and swaps with their reasons. Times are those of this machine.

If no serve runs it tells what can be told without: which binary a start would take.`,
		Example: `  berth why docker
  berth why docker -o json | jq .events`,
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.why(cmd.Context(), socket, args[0], asJSON)
		},
	}
	socket.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}

func (a *app) why(ctx context.Context, socket adminSocketFlag, provider string, asJSON bool) error {
	story, err := a.story(ctx, socket, provider)
	if err != nil {
		return err
	}
	if asJSON {
		return display.Object(a.stdout, story)
	}
	var text strings.Builder
	writeStory(&text, story, time.Now())
	_, err = io.WriteString(a.stdout, text.String())
	return err
}

// story is what the serve tells, or without one what is known here.
func (a *app) story(ctx context.Context, socket adminSocketFlag, provider string) (admin.Story, error) {
	client, err := a.reach(ctx, socket)
	if err == nil {
		defer client.Close()
		return client.Story(ctx, provider)
	}
	if !notServing(err) {
		return admin.Story{}, err
	}
	h, openErr := a.openHost()
	if openErr != nil {
		return admin.Story{}, openErr
	}
	story := admin.Story{Events: []host.Event{}}
	if story.Search, openErr = h.Search(provider); openErr != nil {
		return admin.Story{}, openErr
	}
	for _, st := range h.Providers() {
		if st.Name == provider {
			story.Provider = host.ProviderStatus{Name: st.Name, Plugin: st.Plugin}
		}
	}
	a.say("%v", err)
	return story, nil
}

// shownEvents are the newest that people read; -o json has all that are kept.
const shownEvents = 20

// writeStory tells a story to people.
func writeStory(w io.Writer, s admin.Story, now time.Time) {
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(key, format string, args ...any) {
		text := strings.Split(display.Text(fmt.Sprintf(format, args...)), "\n")
		fmt.Fprintf(table, "%s:\t%s\n", key, strings.Join(text, "\n\t"))
	}
	st := s.Provider
	line("provider", "%s, plugin %s", st.Name, st.Plugin)
	if s.Serve != nil {
		writeState(line, s, now)
	}
	writeBinary(line, s)
	if s.Serve != nil {
		line("log level", "%s", levelText(s.LogLevel))
	}
	_ = table.Flush() // to a buffer
	if len(s.Search.Folders) > 0 {
		fmt.Fprintln(w, "\nLooked for it in:")
		writeFolders(w, s.Search)
	}
	if len(s.Events) == 0 {
		return
	}
	events := s.Events
	if more := len(events) - shownEvents; more > 0 {
		events = events[more:]
		fmt.Fprintf(w, "\nWhat happened (%d older: -o json):\n", more)
	} else {
		fmt.Fprintln(w, "\nWhat happened:")
	}
	table = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range events {
		text := strings.ReplaceAll(display.Text(e.Text), "\n", "\n\t\t\t")
		fmt.Fprintf(table, "  %s\t%s ago\t%s\t%s\n", e.Time.Local().Format(time.DateTime), age(e.Time, now), display.Name(e.Kind), text)
	}
	_ = table.Flush()
}

// decisive are the kinds of events that bring a state about.
var decisive = map[string][]string{
	"running":      {"started", "swapped", "responsive"},
	"unresponsive": {"unresponsive"},
	"failed":       {"died", "killed", "start-failed"},
	"stopped":      {"idle-stop"},
	"starting":     {"start"},
	"quarantined":  {"quarantined"},
}

func writeState(line func(key, format string, args ...any), s admin.Story, now time.Time) {
	st := s.Provider
	state := st.State
	if !st.Since.IsZero() {
		state += " since " + moment(st.Since, now)
	}
	if st.PID != 0 {
		state += fmt.Sprintf(", pid %d, %d calls", st.PID, st.InFlight)
	}
	line("state", "%s", state)
	newest := func(kinds ...string) (host.Event, bool) {
		for _, e := range slices.Backward(s.Events) {
			if slices.Contains(kinds, e.Kind) {
				return e, true
			}
		}
		return host.Event{}, false
	}
	cause, ok := newest(decisive[st.State]...)
	if ok {
		line("because", "%s: %s", cause.Kind, cause.Text)
	} else if st.State == "stopped" {
		line("because", "no call has needed it yet: the next one starts it")
	}
	if st.Quarantine != "" {
		line("quarantine", "%s", st.Quarantine)
	}
	if st.Restarts > 0 {
		line("restarts", "%d", st.Restarts)
	}
	if st.LastError != "" && !strings.Contains(cause.Text, st.LastError) {
		line("last error", "%s", st.LastError)
	}
	if st.Leaving > 0 {
		line("leaving", "%d older processes finish the calls that they have", st.Leaving)
	}
	if st.SwapError != "" {
		line("not swapped", "%s", st.SwapError)
	}
}

func writeBinary(line func(key, format string, args ...any), s admin.Story) {
	st, found := s.Provider, s.Search
	if st.PID != 0 && st.Path != "" {
		line("version", "%s", cell(st.Version))
		line("binary", "%s\n%s", st.Path, cell(st.Digest))
	}
	switch {
	case len(found.Folders) == 0:
		line("binary", "none: it is served in the process of its host")
		return
	case found.Error != "" && strings.Contains(st.SwapError+st.LastError, found.Error):
		line("next start", "would fail for that reason")
	case found.Error != "":
		line("next start", "would fail: %s", found.Error)
	case st.PID == 0:
		line("binary", "%s\n%s", found.Path, cell(found.Digest))
	case found.Path != st.Path || found.Digest != st.Digest:
		what := "which is not what runs: berth reload " + st.Name + " swaps to it"
		if st.SwapError != "" {
			what = "which was tried, and did not come up"
		}
		line("next start", "would take %s\n%s\n%s", found.Path, cell(found.Digest), what)
	}
	switch {
	case found.RolledBackFrom != "":
		line("lock", "%s allows only these bytes, to which it was rolled back from\n%s", found.Lock, found.RolledBackFrom)
	case found.Locked:
		line("lock", "%s allows only these bytes", found.Lock)
	case found.Lock != "":
		line("lock", "%s", found.Lock)
	default:
		line("lock", "none: whatever is found may run")
	}
}

// writeFolders marks the folder whose binary a start takes.
func writeFolders(w io.Writer, s host.PluginSearch) {
	taken := false
	for _, f := range s.Folders {
		mark, note := " ", "none there"
		switch {
		case f.Reason != "":
			note = "passed over: " + f.Reason
		case f.Path != "" && !taken:
			mark, note, taken = "*", filepath.Base(f.Path)+", the first", true
		case f.Path != "":
			note = filepath.Base(f.Path) + " too, which an earlier folder hides"
		}
		fmt.Fprintf(w, "%s %s: %s\n", mark, display.Name(f.Dir), display.Text(note))
	}
}
