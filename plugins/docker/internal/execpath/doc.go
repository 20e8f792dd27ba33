// Package execpath makes a running container a workspace through the engine's exec
// and archive calls alone, for where the guest cannot run.
//
//	ws, err := execpath.New(ctx, execpath.Config{Engine: e, ContainerID: id, WorkingDir: "/workspace"})
//
// Everything goes through the container's /bin/sh. A command has a shell of its own
// as its parent, which gets argv, environment and directory on its stdin, so that
// they are exact bytes and no value of the environment is in any list of processes
// or description of an exec; it tells the exit code in the command's own stream,
// after all that the command wrote. Files are [shellfs]'s, by shells that are kept.
// One more kept shell signals and stops commands, and stops those that run when the
// plugin dies.
//
// What escapes a stop is a descendant that has left its process group, session,
// parent and environment all at once. A container without a shell has files only,
// by archive calls. These are its [Deviations], and there are no others.
package execpath
