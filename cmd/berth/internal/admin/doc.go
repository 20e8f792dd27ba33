// Package admin is the admin socket of a running berth serve: a unix socket that
// only the serve's own user, and root, reach, with JSON over HTTP inside. [Locate]
// tells where it is, [Listen] opens it, [NewServer] answers there, and [Connect]
// asks.
//
// A socket belongs to a configuration: its name is made from the path of that
// configuration's file, so that serves of two do not meet and a command that is
// given the same file finds the one that it means.
package admin
