// Package transfer copies files and folders between this machine and
// workspaces, in any direction, byte for byte, with their permissions, links as
// links. It begins with a [Place] of a command line and ends with [Copy]:
//
//   - A plan is made of the whole source before anything is written. What is
//     neither a file, a folder nor a link is left out and said so.
//   - Links that are met on the way, in the source or in the destination, are
//     never followed. One that the caller named himself is followed where it is
//     the destination, and copied as a link where it is the source.
//   - A name that would lead out of the destination refuses the copy. On this
//     machine nothing outside the destination can be reached at all, whatever
//     another process does to it meanwhile.
//   - Owners, setuid, setgid and sticky bits are not copied.
package transfer
