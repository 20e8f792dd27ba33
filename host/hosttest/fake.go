package hosttest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// Fake is a [workspace.Host] for tests: its commands are scripted by [Fake.On],
// its files kept in memory, and nothing is started. Every provider's name is
// good. The zero value is ready; its methods may be called concurrently.
//
// It keeps what the contract says of handles, commands and plain files, as far
// as a test sees it. It has no symbolic links, modes that can be changed, or
// appending: those are [errors.ErrUnsupported].
type Fake struct {
	mu         sync.Mutex
	scripts    []*script
	commands   []workspace.Command
	workspaces map[workspace.Ref]*files
	commandsOf map[workspace.Ref]map[string]*command // those that can be found again
	runs       int
}

var _ workspace.Host = (*Fake)(nil)

// Reply is what a scripted command does.
type Reply struct {
	// Stdout and Stderr are what it writes.
	Stdout, Stderr string
	// ExitCode is its own.
	ExitCode int
	// Err, instead of an exit code, is what the call fails with, such as
	// [workspace.ErrUnavailable] or a [*workspace.PluginError].
	Err error
	// Hang has it run until it is stopped by its timeout, its context or a
	// signal, after its output.
	Hang bool
}

type script struct {
	args  []string
	reply Reply
	used  bool
}

// On scripts the next command whose argv begins with args; a command that is a
// shell script has the argv /bin/sh -c SCRIPT. Replies for the same command are
// given in the order in which they were scripted, the last one again and again.
// What nobody scripted exits with 127.
func (f *Fake) On(reply Reply, args ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scripts = append(f.scripts, &script{args: args, reply: reply})
}

// Commands are those that were started, in order.
func (f *Fake) Commands() []workspace.Command {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commands)
}

// begin records a command and finds its reply.
func (f *Fake) begin(cmd workspace.Command) (id string, _ Reply) {
	args := cmd.Args
	if cmd.Script != "" {
		args = []string{"/bin/sh", "-c", cmd.Script}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs++
	f.commands = append(f.commands, cmd)
	id = fmt.Sprintf("run-%d", f.runs)
	var last *script
	for _, s := range f.scripts {
		if len(s.args) > len(args) || !slices.Equal(s.args, args[:len(s.args)]) {
			continue
		}
		last = s
		if !s.used {
			s.used = true
			return id, s.reply
		}
	}
	if last != nil {
		return id, last.reply
	}
	return id, Reply{ExitCode: workspace.ExitNotFound, Stderr: fmt.Sprintf("hosttest: nobody scripted %q\n", args)}
}

// Workspace makes a handle that creates on its first operation.
func (f *Fake) Workspace(provider string, opts ...workspace.Option) (workspace.Workspace, error) {
	if err := workspace.ValidateName(provider); err != nil {
		return nil, fmt.Errorf("provider %w", err)
	}
	var o workspace.OpenOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := workspace.ValidateLabels(o.Labels); err != nil {
		return nil, err
	}
	w := &fakeWorkspace{fake: f, name: o.Name, labels: maps.Clone(o.Labels), future: workspace.Ref{Provider: provider, ID: o.Token}}
	switch {
	case o.Name != "":
		if err := workspace.ValidateWorkspaceName(o.Name); err != nil {
			return nil, err
		}
		w.future.ID = o.Name
	case o.Token == "":
		w.future.ID = workspace.NewToken()
	case !workspace.IsToken(o.Token):
		return nil, fmt.Errorf("token %q: %w", o.Token, workspace.ErrInvalid)
	}
	return w, nil
}

// Attach makes a handle that never creates.
func (f *Fake) Attach(ref workspace.Ref, _ ...workspace.Option) (workspace.Workspace, error) {
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	return &fakeWorkspace{fake: f, ref: ref}, nil
}

// Destroy ends a workspace; already gone is success.
func (f *Fake) Destroy(_ context.Context, ref workspace.Ref) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.workspaces, ref)
	delete(f.commandsOf, ref)
	return nil
}

// List tells what is there, sorted by ref.
func (f *Fake) List(_ context.Context, provider string, opts workspace.ListOptions) iter.Seq2[workspace.Info, error] {
	f.mu.Lock()
	var infos []workspace.Info
	for ref, files := range f.workspaces {
		info := workspace.Info{Ref: ref, Name: files.name, Labels: maps.Clone(files.labels), Created: files.created, State: "running"}
		match := ref.Provider == provider && time.Since(info.Created) >= opts.OlderThan
		for key, value := range opts.Labels {
			match = match && info.Labels[key] == value
		}
		if match {
			infos = append(infos, info)
		}
	}
	f.mu.Unlock()
	slices.SortFunc(infos, func(a, b workspace.Info) int { return strings.Compare(a.Ref.ID, b.Ref.ID) })
	return func(yield func(workspace.Info, error) bool) {
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// open finds or makes the files of a handle's workspace.
func (f *Fake) open(w *fakeWorkspace) (*files, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ref, create := w.ref, w.ref.IsZero()
	if create {
		ref = w.future
	}
	found := f.workspaces[ref]
	switch {
	case found != nil:
	case !create:
		return nil, fmt.Errorf("%s: %w", ref, workspace.ErrUnavailable)
	default:
		found = newFiles(w.name, w.labels)
		if f.workspaces == nil {
			f.workspaces = make(map[workspace.Ref]*files)
		}
		f.workspaces[ref] = found
	}
	if w.files != nil && w.files != found {
		return nil, fmt.Errorf("%s was replaced: %w", ref, workspace.ErrUnavailable)
	}
	w.ref, w.files = ref, found
	return found, nil
}
