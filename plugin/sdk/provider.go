package sdk

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/shared/workspace"
)

// Plugin describes a plugin binary. C is the struct of its configuration: its
// json tags name the keys, jsonschema tags describe them, and berth tags say
// what is special about them:
//
//	Image string `json:"image" jsonschema:"description=…" berth:"per_workspace"`
//	Token string `json:"token" berth:"secret"`
//	Root  string `json:"root" berth:"path"`
//
// per_workspace keys may be set for one workspace, secret ones are redacted
// everywhere, path ones resolve from the configuration file's folder. A key env
// of type map[string]string is every command's environment (contract C9): the
// SDK applies it and treats its values as secrets.
type Plugin[C any] struct {
	// Name is that of the binary, berth-provider-NAME.
	Name string
	// Version is for people.
	Version string
	// New makes the provider. It is called once, with a configuration that the
	// schema accepts. What it returns may implement the optional interfaces of
	// providers: [Lister], [Stopper], [StoredReader], [Sweeper], [Announcer],
	// [Ephemeral], [Deviator], [io.Closer].
	New func(ctx context.Context, config C, env Env) (Provider, error)
	// Workspace is any value of the type that Create returns, a typed nil will
	// do: its methods tell what workspaces of this plugin may have.
	Workspace Workspace
	// Environment lists the variables that the plugin reads by convention:
	// exact names, or a prefix with one trailing *.
	Environment []string
	// Companions are the files that the plugin looks for beside its own binary:
	// plain names. A plugin that an operator has pinned runs from a folder that
	// holds just these of all that lay beside it.
	Companions []string
	// DurableRuns has commands outlive the streams that carry them, for as long
	// as this process lives: [workspace.FeatureAttachRun] is announced of every
	// workspace that runs commands (contract B3). It is for a process that
	// outlives its hosts, such as one inside of a container.
	DurableRuns bool
	// Logger is what [Plugin.Register] logs to; nil is errors alone, on stderr.
	// [Serve] has its own.
	Logger hclog.Logger
}

// Env is what a provider may know of where it runs.
type Env struct {
	// Provider is the configured provider's name.
	Provider string
	// DataDir is a folder of this provider's own on this machine. It need not
	// exist yet.
	DataDir string
	// Logger writes to the host's log under the provider's name.
	Logger hclog.Logger
}

// Provider makes, finds and ends workspaces. Ids are the service's own names,
// any bytes: the SDK encodes them into refs and decodes them.
type Provider interface {
	// Create makes a workspace, or returns the one that the same token, or the
	// same name, made before (contract L2, L4). One that fails leaves nothing.
	Create(ctx context.Context, req CreateRequest) (Workspace, error)
	// Attach opens an existing workspace, starts it if it is stopped, and never
	// creates one; gone is [workspace.ErrUnavailable] (contract L3).
	Attach(ctx context.Context, id string) (Workspace, error)
	// Destroy ends a workspace and returns when it can no longer be attached.
	// Gone already is success; what this provider did not make is
	// [workspace.ErrInvalid] (contract L6).
	Destroy(ctx context.Context, id string) error
}

// CreateRequest says what to create.
type CreateRequest struct {
	// Token is berth-<16 hex digits>, the same for every try.
	Token string
	// Name is the one asked for, or empty. Then the token is the name.
	Name string
	// Labels are the embedder's, valid and without reserved keys. They are
	// empty unless the provider announces [workspace.FeatureLabels].
	Labels map[string]string
	// Overrides is a JSON object of per-workspace keys, or nil: see [Override].
	Overrides json.RawMessage
}

// Key is the name under which the workspace is made: Name, or else Token.
func (r CreateRequest) Key() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Token
}

// Workspace is one open workspace. It implements one or more of [Commander]
// and [Filesystem], and any of [RealPather], [Renamer], [Linker], [Chmoder],
// [Chtimer], [Announcer], [Environer], [Watcher] and [io.Closer]. Its methods
// are called concurrently.
type Workspace interface {
	// ID is the service's own name of it.
	ID() string
	// Incarnation changes whenever the workspace is replaced under the same id
	// (contract L8).
	Incarnation() string
	// WorkingDir is absolute and canonical (contract C2).
	WorkingDir() string
}

// Commander runs commands.
type Commander interface {
	// Start starts a command. What it refuses has not started (contract C1,
	// C2); a program that does not exist or cannot be executed is a process
	// that exits 127 or 126 with the reason on its stderr (contract C3). The
	// context is for the start alone.
	Start(ctx context.Context, cmd Command) (Process, error)
}

// Command is what to start. The SDK has validated it.
type Command struct {
	// RunID is the host's name of this run.
	RunID string
	// Args is never empty. A script arrives as /bin/sh -c.
	Args []string
	// Dir is absolute.
	Dir string
	// Env is to be added to the workspace's own environment.
	Env map[string]string
	// Stdin says that the command gets an input; otherwise it is at its end.
	Stdin bool
}

// Process is a command that was started. The SDK reads both outputs, at the
// caller's pace, writes the input, waits, stops it at its limits, and closes it.
type Process interface {
	// Stdin is nil unless asked for. Closing it is the end of the input.
	Stdin() io.WriteCloser
	// Stdout and Stderr end when the command is done: when its direct process
	// has exited and what the pipe held then was read, though a background child
	// may still hold it open (contract C8). Not reading stops the command from
	// writing more, and loses nothing.
	Stdout() io.Reader
	Stderr() io.Reader
	// Wait returns the exit code when the direct process has ended (contract
	// C3). A workspace that went away is [workspace.ErrUnavailable], an end
	// that is not known any other error.
	Wait() (int, error)
	// Signal sends to the direct process; one that has ended is
	// [os.ErrProcessDone].
	Signal(ctx context.Context, sig workspace.Signal) error
	// Stop ends the whole process tree, however its processes detached: TERM,
	// KILL after grace, and return when none is left or 2 s later, telling what
	// survived and why, or "" (contract C5). It may be called more than once,
	// and after the end.
	Stop(grace time.Duration) (survivors string)
	// Close releases what the host side holds. Background children of a command
	// that ended go on, and what they write is drained (contract C8).
	Close() error
}

// Interfaces of workspaces with files. Paths arrive absolute, without NUL, but as
// they were given otherwise: with .. and links in them. Errors are of the kinds of
// contract F3, syscall.ENOTDIR or fs.ErrNotExist as they are will do, and name any
// path: the SDK puts in the caller's.
type (
	// Filesystem is what every workspace with files has.
	Filesystem = workspace.Filesystem
	// RealPather is for workspaces that resolve faster or better than the SDK,
	// which does it by Lstat.
	RealPather = workspace.RealPather
	// Renamer is an optional feature (contract F10), as are those that follow.
	Renamer = workspace.Renamer
	// Linker makes and reads symbolic links.
	Linker = workspace.Linker
	// Chmoder changes permissions.
	Chmoder = workspace.Chmoder
	// Chtimer changes modification times, also as an option of a write.
	Chtimer = workspace.Chtimer
)

// Announcer tells features that no method shows. On a workspace:
// [workspace.FeatureShell], [workspace.FeatureExclusive],
// [workspace.FeatureAppend]. On a provider: [workspace.FeatureLabels].
type Announcer interface {
	Announce() []workspace.Feature
}

// Watcher notices that its workspace goes away while a command runs.
type Watcher interface {
	// Watch returns an error that wraps [workspace.ErrUnavailable] when the
	// workspace is gone or replaced, or ctx's error (contract L7).
	Watch(ctx context.Context) error
}

// Lister tells what the provider made.
type Lister interface {
	// List may leave filtering by opts to the SDK.
	List(ctx context.Context, opts workspace.ListOptions) iter.Seq2[Info, error]
}

// Stopper ends what a workspace costs while nobody uses it.
type Stopper interface {
	// Stop ends what runs in a workspace and keeps its files; the next Attach starts
	// it again (contract L3). One that is stopped already is success, one that is
	// gone [workspace.ErrUnavailable]. One whose files would not survive is
	// [errors.ErrUnsupported], and so is one that this provider did not make.
	Stop(ctx context.Context, id string) error
}

// StoredReader reads the files of workspaces that do not run.
type StoredReader interface {
	// OpenStored opens a workspace's files as they are kept, and starts nothing. Gone
	// is [workspace.ErrUnavailable].
	OpenStored(ctx context.Context, id string) (Stored, error)
}

// Stored is the files of a workspace, to be read. It may implement [RealPather] and
// [io.Closer].
type Stored interface {
	Workspace
	// As those of [Filesystem].
	Stat(ctx context.Context, path string) (workspace.FileInfo, error)
	Lstat(ctx context.Context, path string) (workspace.FileInfo, error)
	ReadDir(ctx context.Context, path string) ([]workspace.FileInfo, error)
	Open(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error)
}

// Sweeper removes what the provider keeps beside its workspaces.
type Sweeper interface {
	// Sweep removes what nothing uses any more, and tells what it was; that of a
	// workspace that is there is never touched (contract L6). It removes what it can
	// and returns that also beside an error.
	Sweep(ctx context.Context, opts workspace.SweepOptions) ([]workspace.Leftover, error)
}

// Info is one workspace in a listing.
type Info struct {
	// ID is the service's own name.
	ID string
	// Name is the one asked for at its creation, if any.
	Name string
	// Labels are the embedder's.
	Labels map[string]string
	// Created is zero where not known.
	Created time.Time
	// State is the service's own word, such as "running".
	State string
	// Details are for people to read, such as the image.
	Details map[string]string
}

// Ephemeral is a provider whose workspaces die with its process: it is never
// stopped for idleness. It does not keep L6 and B3 of the contract, and says so
// as a [Deviator].
type Ephemeral interface {
	Ephemeral() bool
}

// Deviator is a provider that cannot keep every rule of the contract.
type Deviator interface {
	Deviations() []Deviation
}

// Deviation is a rule that is not kept, and why.
type Deviation struct {
	Rule   string // such as "L3"
	Reason string
}

// Progress says what a Create or Attach is doing.
type Progress struct {
	// Text is such as "pulling python:3.12-slim".
	Text string
	// Done of Total, zero where not known, in Unit.
	Done, Total int64
	Unit        string
}
