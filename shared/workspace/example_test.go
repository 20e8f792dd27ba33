package workspace_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func ExampleParseRef() {
	ref, err := workspace.ParseRef("docker/berth-3f62a91c0d5e4b78")
	fmt.Println(ref.Provider, ref.ID, err)

	_, err = workspace.ParseRef("docker/a b")
	fmt.Println(errors.Is(err, workspace.ErrInvalid), err)
	// Output:
	// docker berth-3f62a91c0d5e4b78 <nil>
	// true ref "docker/a b": id "a b": byte 1 (0x20) must be written %20: invalid request
}

// An application stores a ref with its own data and reads it months later.
func ExampleRef() {
	type conversation struct {
		Title     string         `json:"title"`
		Workspace *workspace.Ref `json:"workspace,omitempty"`
	}
	data, _ := json.Marshal(conversation{"Fix the build", &workspace.Ref{Provider: "docker", ID: "berth-3f62a91c0d5e4b78"}})
	fmt.Println(string(data))

	var c conversation
	err := json.Unmarshal(data, &c)
	fmt.Println(c.Workspace, err)
	// Output:
	// {"title":"Fix the build","workspace":{"provider":"docker","id":"berth-3f62a91c0d5e4b78"}}
	// docker/berth-3f62a91c0d5e4b78 <nil>
}

func ExampleSplitRefPath() {
	ref, path, err := workspace.SplitRefPath("notes/conv-42:a:b.txt")
	fmt.Println(ref, path, err)
	// Output: notes/conv-42 a:b.txt <nil>
}

func ExampleEncodeID() {
	id, _ := workspace.EncodeID("agents/pod 1")
	name, _ := workspace.DecodeID(id)
	fmt.Println(id, "is", name)
	// Output: agents%2Fpod%201 is agents/pod 1
}

func ExampleCommand_Validate() {
	fmt.Println(workspace.Command{Args: []string{"ls", "-l"}, Timeout: time.Minute}.Validate())
	fmt.Println(workspace.Command{Args: []string{"ls"}, Script: "ls"}.Validate())
	// Output:
	// <nil>
	// command: both Args and Script: invalid request
}

// What to do about an error is decided by what it is, never by its text.
func Example_errors() {
	decide := func(err error) string {
		var timeout *workspace.TimeoutError
		var plugin *workspace.PluginError
		switch {
		case err == nil:
			return "go on"
		case errors.As(err, &timeout):
			return fmt.Sprintf("tell the agent what it printed: %s", timeout.Stdout)
		case errors.Is(err, fs.ErrNotExist):
			return "tell the agent that there is no such file"
		case errors.Is(err, workspace.ErrUnavailable):
			return "open a new workspace"
		case errors.Is(err, workspace.ErrTransient):
			return "try again later"
		case errors.As(err, &plugin) && !plugin.MayHaveExecuted:
			return "try again now"
		case errors.As(err, &plugin):
			return "look at what it did, then go on"
		default:
			return "give up"
		}
	}
	for _, err := range []error{
		nil,
		&workspace.TimeoutError{Timeout: time.Second, Stdout: []byte("1 2 3")},
		&fs.PathError{Op: "open", Path: "a.txt", Err: fs.ErrNotExist},
		fmt.Errorf("container berth-3f62a91c0d5e4b78 is gone: %w", workspace.ErrUnavailable),
		fmt.Errorf("the engine answers 503: %w", workspace.ErrTransient),
		&workspace.PluginError{Provider: "docker", Op: "start", Reason: "exec format error"},
		&workspace.PluginError{Provider: "docker", Op: "run", Reason: "the plugin died", MayHaveExecuted: true},
		fmt.Errorf("no argv: %w", workspace.ErrInvalid),
	} {
		fmt.Println(decide(err))
	}
	// Output:
	// go on
	// tell the agent what it printed: 1 2 3
	// tell the agent that there is no such file
	// open a new workspace
	// try again later
	// try again now
	// look at what it did, then go on
	// give up
}

// A program that records its token before the first operation finds its
// workspace again after its own death.
func ExampleWithToken() {
	token := workspace.NewToken()
	var opts workspace.OpenOptions
	workspace.WithToken(token)(&opts)
	fmt.Println(workspace.IsToken(opts.Token), len(token))
	// Output: true 22
}
