package workspace

import (
	"context"
	"io/fs"
	"iter"
	"time"
)

// Commands runs commands. A provider that only holds files says
// [errors.ErrUnsupported].
type Commands interface {
	// Run starts a command and waits for it.
	Run(ctx context.Context, cmd Command) (*Result, error)
	// Start starts a command; its output streams to the command's own writers.
	Start(ctx context.Context, cmd Command) (Process, error)
}

// Workspace is a handle. Making one does no I/O; its first operation creates
// or attaches (contract L1 to L4). All methods may be called concurrently.
//
// A wrapper embeds a Workspace and overrides what it changes, so that it
// stands whatever this interface gains.
type Workspace interface {
	Commands
	Runs
	Filesystem
	RealPather
	Renamer
	Linker
	Chmoder
	Chtimer

	// Ref is the way back, once there is one. It never changes (contract L5).
	Ref() (Ref, bool)
	// WorkingDir is absolute and canonical (contract C2). It opens the
	// workspace if need be.
	WorkingDir(ctx context.Context) (string, error)
	// Features says which optional parts this workspace has. It opens the
	// workspace if need be.
	Features(ctx context.Context) (Features, error)

	// ReadFile reads a whole file.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile creates or replaces a whole file (contract F2).
	WriteFile(ctx context.Context, path string, data []byte) error
	// RemoveAll is Remove, but nil where nothing is (contract F6).
	RemoveAll(ctx context.Context, path string) error
	// FS is the workspace's files as an [io/fs] file system, rooted at the
	// working directory. Calls on it end with ctx.
	FS(ctx context.Context) fs.FS
}

// Feature is an optional part of a workspace or provider. New ones may come;
// those that a program does not know mean nothing to it.
type Feature string

// What a workspace may have.
const (
	FeatureCommands  Feature = "commands"   // Run, Start
	FeatureShell     Feature = "shell"      // Command.Script: there is a /bin/sh
	FeatureFiles     Feature = "files"      // Filesystem and RealPath
	FeatureRename    Feature = "rename"     // Rename
	FeatureSymlink   Feature = "symlink"    // Symlink, Readlink
	FeatureChmod     Feature = "chmod"      // Chmod
	FeatureChtimes   Feature = "chtimes"    // Chtimes, WriteOptions.ModTime
	FeatureExclusive Feature = "exclusive"  // WriteOptions.Exclusive
	FeatureAppend    Feature = "append"     // WriteOptions.Append
	FeatureAttachRun Feature = "attach-run" // runs are found again: Command.Detached
)

// What a provider may have.
const (
	FeatureList   Feature = "list"   // List
	FeatureLabels Feature = "labels" // labels of the embedder's
	FeatureSweep  Feature = "sweep"  // what it keeps beside workspaces can be removed
	FeatureStop   Feature = "stop"   // a workspace can be stopped, its files kept
	FeatureStored Feature = "stored" // files of one that is stopped can be read
)

// Features is a set of them.
type Features map[Feature]bool

// Has reports whether f is among them.
func (s Features) Has(f Feature) bool { return s[f] }

// Info is one workspace in a listing.
type Info struct {
	Ref Ref
	// Name is the one asked for at its creation, if any.
	Name string
	// Labels are the embedder's.
	Labels map[string]string
	// Created is zero where the provider does not know.
	Created time.Time
	// State is the provider's own word, such as "running" or "stopped".
	State string
	// Details are for people to read, such as the image.
	Details map[string]string
}

// ListOptions filter a listing. The zero value is all that this provider made.
type ListOptions struct {
	// Labels must all be there with these values.
	Labels map[string]string
	// OlderThan is the least age; workspaces of unknown age are left out then.
	OlderThan time.Duration
}

// Leftover is something that a provider keeps beside its workspaces and that
// nothing uses any more, such as an image that it built.
type Leftover struct {
	// Kind is the service's own word, such as "volume".
	Kind string
	Name string
}

// SweepOptions say which leftovers are removed.
type SweepOptions struct {
	// DryRun only tells what would be removed.
	DryRun bool
	// OlderThan is the least time for which nothing has used it, as far as the
	// provider knows. It keeps some for longer, at its own discretion.
	OlderThan time.Duration
}

// Host opens workspaces of its configured providers. Suites and wrappers ask
// for this rather than for a particular host.
type Host interface {
	// Workspace makes a handle that creates on its first operation. No I/O.
	Workspace(provider string, opts ...Option) (Workspace, error)
	// Attach makes a handle to an existing workspace, which never creates one.
	// No I/O.
	Attach(ref Ref, opts ...Option) (Workspace, error)
	// Destroy is the only way to end a workspace; already gone is success
	// (contract L6).
	Destroy(ctx context.Context, ref Ref) error
	// List tells what this provider made, in no particular order. It ends at
	// the first error.
	List(ctx context.Context, provider string, opts ListOptions) iter.Seq2[Info, error]
}

// OpenOptions are what [Option] values set.
type OpenOptions struct {
	Name   string
	Token  string
	Labels map[string]string
	Config map[string]any
	// Progress is called by the goroutine that opens the workspace, one call
	// after the other.
	Progress func(Progress)
}

// Option changes how a handle opens its workspace.
type Option func(*OpenOptions)

// WithName names the workspace: created on first use, attached after, shared
// by all who use the name (contract L4).
func WithName(name string) Option { return func(o *OpenOptions) { o.Name = name } }

// WithToken gives the token of [NewToken] under which the workspace is created.
// A program that records it before the first operation finds its workspace
// again after its own death (contract L2).
func WithToken(token string) Option { return func(o *OpenOptions) { o.Token = token } }

// WithLabels adds labels, in Kubernetes' syntax, that List filters by.
func WithLabels(labels map[string]string) Option {
	return func(o *OpenOptions) { o.Labels = labels }
}

// WithConfig overrides keys of the provider's configuration that its schema
// marks per_workspace. They are fixed at the workspace's creation, but env:
// that travels with each command of this handle.
func WithConfig(config map[string]any) Option {
	return func(o *OpenOptions) { o.Config = config }
}

// WithProgress has f called with what the opening of the workspace does, such as
// pulling an image. One that blocks holds the opening up.
func WithProgress(f func(Progress)) Option {
	return func(o *OpenOptions) { o.Progress = f }
}
