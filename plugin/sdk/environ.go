package sdk

import "maps"

// Environer is a [Workspace] that has variables for its commands beside those of
// the configuration key env, such as the settings of what is installed in it.
// They come before the configured ones, which come before the call's: the later
// wins (contract C9). Like those they travel with each command.
type Environer interface {
	// Environ is called for each command. Names are valid, and the map is not
	// changed after.
	Environ() map[string]string
}

// environ returns a workspace's variables, if it has any.
func environ(ws Workspace) map[string]string {
	if e, ok := ws.(Environer); ok {
		return e.Environ()
	}
	return nil
}

// withEnviron returns env with a workspace's variables below it.
func withEnviron(ws Workspace, env map[string]string) map[string]string {
	own := environ(ws)
	if len(own) == 0 {
		return env
	}
	all := maps.Clone(own)
	maps.Copy(all, env)
	return all
}
