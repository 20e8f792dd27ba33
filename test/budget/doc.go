// Package budget tests what bounds plugins, with hosts and plugins in processes of
// their own: by control groups where this user may make them, without them where
// not.
package budget
