// Command images makes the images that the tests against a container engine use,
// each unless the engine has it: `go run ./test/docker/images [NAME…]`. Package
// testimages says what they hold. The engine is found by DOCKER_HOST.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/test/docker/internal/testimages"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	if len(names) == 0 {
		names = testimages.Names()
	}
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer engine.Close()
	for _, name := range names {
		ref, err := testimages.Ensure(ctx, engine, name, func(text string) { fmt.Fprintln(os.Stderr, text) })
		if err != nil {
			return err
		}
		fmt.Println(ref)
	}
	return nil
}
