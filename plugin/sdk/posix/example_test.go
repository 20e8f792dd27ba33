package posix_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

// A program that runs commands calls posix.Main first, in its main function and
// in TestMain.
func Example() {
	posix.Main()

	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = posix.RemoveTree(dir) }()
	ws, err := posix.Open(posix.Config{Dir: dir, ID: "example", Env: map[string]string{"PATH": "/usr/bin:/bin"}})
	if err != nil {
		log.Print(err)
		return
	}
	defer ws.Close()
	if runtime.GOOS == "windows" { // which has files only
		fmt.Println("hello")
		return
	}
	p, err := ws.Start(context.Background(), sdk.Command{Args: []string{"echo", "hello"}})
	if err != nil {
		log.Print(err)
		return
	}
	defer p.Close()
	if _, err := io.Copy(os.Stdout, p.Stdout()); err != nil {
		log.Print(err)
	}
	if code, err := p.Wait(); code != 0 || err != nil {
		log.Print(code, err)
	}
	// Output: hello
}
