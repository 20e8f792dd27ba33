package sdk

import (
	"maps"
	"testing"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// outfitted are workspaces with variables of their own.
type (
	outfittedRunner  struct{ *runner }
	outfittedGuarded struct{ *guarded }
)

var outfit = map[string]string{"A": "workspace", "B": "workspace", "C": "workspace"}

func (outfittedRunner) Environ() map[string]string  { return outfit }
func (outfittedGuarded) Environ() map[string]string { return outfit }

// A command gets the workspace's variables, then the configured ones, then its own.
func TestC9_WorkspacesOwnVariablesComeFirst(t *testing.T) {
	process, relayed := newFakeProcess(), newFakeProcess()
	var seen, inside Command
	guest := starting(relayed, &inside)
	guest.bare = newInside()
	for name, test := range map[string]struct {
		ws      Workspace
		process *fakeProcess
		seen    *Command
	}{
		"run here": {outfittedRunner{starting(process, &seen)}, process, &seen},
		"relayed":  {outfittedGuarded{guardedBy(t, guest)}, relayed, &inside},
	} {
		t.Run(name, func(t *testing.T) {
			client := serveConfigured(t, providing(test.ws), `{"env":{"B":"configured","C":"configured"}}`)
			call := startRun(t, t.Context(), client, &berthv1.RunStart{Env: []*berthv1.EnvVar{{Name: []byte("C"), Value: []byte("call")}}})
			call.until("started", func() bool { return call.started })
			if want := map[string]string{"A": "workspace", "B": "configured", "C": "call"}; !maps.Equal(test.seen.Env, want) {
				t.Errorf("environment %v, want %v", test.seen.Env, want)
			}
			test.process.exit(0, nil)
			if _, err := call.wait(); err != nil {
				t.Error(err)
			}
			if outfit["C"] != "workspace" {
				t.Error("the workspace's own variables were changed")
			}
		})
	}
}
