// Package shellfs derives a workspace's files from its commands, for providers
// that can only run commands: it needs a POSIX shell and the file tools of GNU,
// BusyBox or the like in the workspace, and a [Runner] that runs scripts there.
//
//	files, err := shellfs.New(ctx, shellfs.Config{Runner: runner, WorkingDir: "/workspace"})
//
// [NewPaged] is for services that only run commands to their ends, as text.
//
// [FS] has what [sdk.Filesystem] and the optional interfaces of files ask for. Each
// operation is one script, so one round trip. Files are whose user the scripts run
// as, names may hold any byte, content streams, and a write is published in one
// step when it is complete (contract F1, F2, F8, F9). Where the workspace's touch
// sets no nanoseconds, as BusyBox's does not, modification times cannot be set:
// see [FS.Withhold].
package shellfs
