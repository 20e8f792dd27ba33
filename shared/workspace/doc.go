// Package workspace is the contract between those who use workspaces and those
// who provide them, in plain Go and nothing but the standard library.
//
// A workspace is the environment in which an agent works: it runs commands, or
// holds files, or both, over one filesystem. A [Ref] is the only way back to
// one; applications store it for months. Embedders meet a workspace as
// [Workspace], open it through a [Host], and decide on errors with [errors.Is]
// and [errors.As]:
//
//   - [ErrInvalid]: the request itself is wrong; nothing was started.
//   - [ErrUnavailable]: the workspace is gone, and no retry brings it back.
//   - [ErrTransient]: the provider's service has a passing fault; try again.
//   - [ErrReadOnly]: this handle does not change anything.
//   - [errors.ErrUnsupported]: this provider has no such feature.
//   - [*TimeoutError], [*OutputLimitError]: a command was stopped at its limit.
//   - [*PluginError]: the plugin process failed; it says whether the call may
//     have been carried out.
//   - [*io/fs.PathError]: everything about files, with the path as the caller
//     gave it and the standard library's error inside.
//
// The rules that comments cite (contract C5, F2, …) are listed in
// docs/contract.md of the project.
package workspace
