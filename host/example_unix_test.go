//go:build unix

package host_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// A provider in its own process does real work: the plugin is found in a folder,
// started by the first operation, and ended with the host. The workspace lives
// until it is destroyed.
func Example() {
	ctx := context.Background()
	plugins, data := exampleFolders()
	defer os.RemoveAll(data)

	h, err := host.New(host.Config{Providers: map[string]host.Provider{"local": {}}, PluginDirs: []string{plugins}, DataDir: data})
	must(err)
	defer h.Close()
	ws, err := h.Workspace("local", workspace.WithName("demo"))
	must(err)
	must(ws.WriteFile(ctx, "a/hello.txt", []byte("hello from a workspace\n")))
	res, err := ws.Run(ctx, workspace.Command{Args: []string{"cat", "a/hello.txt"}, Timeout: time.Minute})
	must(err)
	fmt.Print(res.StdoutText())

	ref, _ := ws.Ref() // to be stored: the way back, also for another process
	fmt.Println(ref)
	again, err := h.Attach(ref)
	must(err)
	infos, err := again.ReadDir(ctx, "a")
	must(err)
	fmt.Println(infos[0].Name, infos[0].Size)
	must(h.Destroy(ctx, ref))
	// Output:
	// hello from a workspace
	// local/demo
	// hello.txt 23
}

func exampleFolders() (plugins, data string) {
	plugins, err := builtPlugins()
	must(err)
	data, err = os.MkdirTemp("", "berth-example-")
	must(err)
	return plugins, data
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
