// Package posix makes a folder of this machine a workspace: its files, and
// commands run as this process's user.
//
//	func main() {
//		posix.Main() // first, and in TestMain too
//		…
//		ws, err := posix.Open(posix.Config{Dir: "/srv/work/a", ID: "a", Env: env})
//	}
//
// It is no sandbox. The folder is where commands start and where relative paths
// begin, nothing more: absolute paths and .. reach whatever the user can reach.
// Inside a container the workspace is the whole machine, as WholeMachine in [Config]
// says: then the folder may come and go.
//
// # Commands
//
// On Linux each running command has a supervisor, which is this same binary
// started again (hence [Main]) as the reaper of all that the command leaves
// behind. So [workspace.Command] timeouts stop the whole tree, whatever detached
// itself (contract C5), while the background children of a command that ended go
// on (contract C8): their supervisor stays with them and drains what they write.
// When the process that started the supervisors dies, however it dies, they stop
// what is still running and end. Supervisors are used again; a few idle ones are
// kept, and for some seconds as many as were needed at once. A keeper, one more
// such process, is the parent of them all and stops
// what is left by a supervisor that is itself killed; both go on when they are
// stopped or sent a signal that would end a program. Only a command that kills the
// keeper and then its supervisor escapes, as it has the rights to: it is the same
// user. How it ended is unknown then, and so is what it left.
//
// Supervisors need /proc: without it commands are [errors.ErrUnsupported], and
// files work. Where it hides other users' processes, what a command has started as
// another user cannot be stopped, and is reported.
//
// Under a limit of processes that is used up, a command that cannot be started is
// [workspace.ErrTransient], and those that run can be stopped. So that the process
// that runs them survives it too, it calls [Reserve]; [PIDs] says what it takes.
//
// A command gets exactly the environment given, umask 022, no descriptor but its
// three, the kernel's default resource limits, signal mask and dispositions, and
// a niceness of 0 and an OOM score of [OOMScoreAdj] (contract C9); as far as the
// kernel lets this user: without privileges no hard limit can be raised, and a
// niceness or OOM score cannot be lowered.
//
// On other unix systems a command is a process group. What leaves it escapes
// being stopped: anything that calls setsid or setpgid, so daemons and the jobs
// of an interactive shell; and when this process is killed, its commands live
// on. What a background child writes is drained only while this process lives.
// On Windows commands are [errors.ErrUnsupported], files work.
//
// # Files
//
// A write goes to an unnamed file and is put in place in one step when it is
// closed. It is made in place instead, after all of it has arrived, where that
// would change more than the content: a file with several hard links, with
// extended attributes, of another owner, in a folder that cannot be written, or
// that is a mount point. An append is put at the end in one go. The
// file's own permissions count, as in os: a folder that can be written does not
// make a read-only file writable.
package posix
