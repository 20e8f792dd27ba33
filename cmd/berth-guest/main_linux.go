package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/cmd/berth-guest/internal/boot"
	"github.com/berth-dev/berth/cmd/berth-guest/internal/splice"
	"github.com/berth-dev/berth/plugin/sdk/guest/serve"
	"github.com/berth-dev/berth/plugin/sdk/posix"
)

// Exit statuses.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitNoGuest   = 3 // connect: nobody serves the socket
	exitForbidden = 4 // connect: it is another user's
	exitRefused   = 5 // connect: the guest ended the connection at once
	exitServed    = 6 // serve: another guest serves the socket
)

const usage = `berth-guest serves the container that it is in to a provider of Berth.

  berth-guest init    --dir DIR --socket PATH   as the container's first process
  berth-guest serve   --dir DIR --socket PATH   as any other
  berth-guest connect --socket PATH             join the standard streams to it
  berth-guest --version
`

func main() {
	posix.Main()
	os.Exit(run(os.Args[1:]))
}

func run(args []string) (status int) {
	role := ""
	if len(args) > 0 {
		role = args[0]
	}
	switch role {
	case "init", "serve", "connect":
	case "--version", "-version":
		return printVersion()
	case "--help", "-h", "help":
		fmt.Print(usage)
		return 0
	default:
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	flags := flag.NewFlagSet("berth-guest "+role, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	socket := flags.String("socket", "", "the path of the unix socket")
	dir := ""
	if role != "connect" {
		flags.StringVar(&dir, "dir", "", "the working directory")
	}
	err := flags.Parse(args[1:])
	switch {
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *socket == "":
		err = errors.New("--socket is missing")
	case role != "connect" && !strings.HasPrefix(dir, "/"):
		err = errors.New("--dir is missing, or is not absolute")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "berth-guest %s: %v\n%s", role, err, usage)
		return exitUsage
	}
	switch role {
	case "init":
		return first(dir, *socket)
	case "serve":
		return served(dir, *socket)
	default:
		return connect(*socket)
	}
}

// settle makes this process independent of what the image's environment would
// have a Go program's memory be.
func settle() {
	debug.SetGCPercent(100)
	debug.SetMemoryLimit(math.MaxInt64)
}

// surviveDeafReaders makes it an error of the write, not the end of this process,
// that nobody reads its standard streams any more. Signals are caught, not
// ignored, which commands would inherit; and on a channel of their own, since each
// may take another one's place in it.
func surviveDeafReaders() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGHUP)
}

func newLogger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "berth-guest", Level: hclog.Info, Output: os.Stderr})
}

func first(dir, socket string) (status int) {
	settle()
	return boot.Run(boot.Config{
		Args: []string{"berth-guest", "serve", "--dir", dir, "--socket", socket}, Env: os.Environ(),
		Hopeless: func(status int) bool { return status == exitFailed || status == exitUsage || status == exitServed },
		Logger:   newLogger(),
	})
}

func served(dir, socket string) (status int) {
	settle()
	posix.Reserve()
	unix.Umask(0o022)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	surviveDeafReaders()
	err := serve.Run(ctx, serve.Config{Dir: dir, Socket: socket, Env: environment(os.Environ()), Version: version, Logger: newLogger()})
	if err != nil {
		fmt.Fprintf(os.Stderr, "berth-guest serve: %v\n", err)
		if errors.Is(err, serve.ErrServed) {
			return exitServed
		}
		return exitFailed
	}
	return 0
}

// environment reads what the process was started with. What no command could
// have, a variable without a name, is left out.
func environment(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, variable := range list {
		if name, value, ok := strings.Cut(variable, "="); ok && name != "" {
			env[name] = value
		}
	}
	return env
}

// connectThreads are what connect has beside those of Go's runtime: one of them waits
// for the end of its input.
const connectThreads = 3

// pollable returns the same pipe or socket as one that no thread waits for. The
// flag for that belongs to all who share a file: of a terminal, the shell too.
func pollable(f *os.File) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return f
	}
	fd := f.Fd()
	if err := unix.SetNonblock(int(fd), true); err != nil {
		return f
	}
	return os.NewFile(fd, f.Name())
}

func connect(socket string) (status int) {
	settle()
	surviveDeafReaders()
	// It waits for sockets and pipes alone, for which one thread is enough.
	runtime.GOMAXPROCS(1)
	posix.MakeThreads(connectThreads)
	err := splice.Run(context.Background(), socket, pollable(os.Stdin), pollable(os.Stdout))
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "berth-guest connect: %v\n", err)
	switch {
	case errors.Is(err, splice.ErrNoGuest):
		return exitNoGuest
	case errors.Is(err, splice.ErrForbidden):
		return exitForbidden
	case errors.Is(err, splice.ErrRefused):
		return exitRefused
	}
	return exitFailed
}

func printVersion() (status int) {
	digest, err := serve.Digest()
	if err != nil {
		fmt.Fprintf(os.Stderr, "berth-guest: %v\n", err)
		return exitFailed
	}
	protocol := strconv.Itoa(serve.ProtocolMin)
	if serve.ProtocolMax > serve.ProtocolMin {
		protocol += fmt.Sprintf("-%d", serve.ProtocolMax)
	}
	if _, err := fmt.Printf("berth-guest %s (guest protocol %s, sha256:%s)\n", version, protocol, hex.EncodeToString(digest)); err != nil {
		return exitFailed
	}
	return 0
}
