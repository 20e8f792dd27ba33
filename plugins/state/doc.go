// Package state is the provider of workspaces that hold files and run nothing:
// a whole file system kept as a document in one SQLite file.
//
//	func main() { sdk.Serve(state.Plugin(version)) }
//
// A workspace has directories, files and symbolic links with modes and
// modification times. Its working directory is /, above which nothing leads.
// Links are resolved inside the document; the paths of this machine are never
// touched. There is one user, who owns everything and whom permissions never
// stop, as with root: modes are kept, and mean what a program that copies the
// files elsewhere makes of them.
//
// Every change is one transaction: after a crash at any moment it is there as
// a whole or not at all, and one that was acknowledged is there. Several
// processes may use one file at the same time. What is written in pieces is
// staged by many short transactions and published by one, so that a slow upload
// delays nobody; a reader holds no transaction either: contents never change,
// and are reclaimed when no reader can have them any more.
//
// The file never shrinks: what is freed is used again.
package state
