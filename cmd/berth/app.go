package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/term"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
)

// app is what the commands share: the standard streams, what the flags of every
// command say, and the host, which the first command that needs it starts.
type app struct {
	stdin          *os.File
	stdout, stderr *stream
	ended          <-chan struct{} // closed when berth is told to end

	reloads atomic.Bool // a hangup reloads, and does not end berth

	configFile string
	verbose    bool

	// began is set when a command's own work begins: an error before that is in
	// the command line.
	began  bool
	adjust []func(*host.Config) // a command's own, for its host
	host   *host.Host
	config host.Config // the host's
	// unasked says that nobody has written down the host's providers: they are the
	// plugins that were found.
	unasked bool
	status  *statusLine // nil where nobody would see it
}

func newApp(stdin, stdout, stderr *os.File) *app {
	return &app{stdin: stdin, stdout: &stream{file: stdout}, stderr: &stream{file: stderr}}
}

// run carries out a command line and returns berth's exit code.
func (a *app) run(args []string) int {
	ctx, stop := withSignals(context.Background(), a.reloads.Load)
	defer stop()
	a.endWith(ctx)
	root := newRootCommand(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	a.clearStatus()
	if err != nil && !a.began {
		err = &usageError{command: cmd.CommandPath(), err: err}
	}
	if closeErr := a.closeHost(); ctx.Err() == nil {
		err = a.also(err, closeErr)
	}
	return a.exit(ctx, err)
}

// endWith makes the end of ctx the end of all waiting for somebody outside.
func (a *app) endWith(ctx context.Context) {
	a.ended, a.stdout.ended, a.stderr.ended = ctx.Done(), ctx.Done(), ctx.Done()
}

// configFileName is what a configuration is called where none is named.
const configFileName = "berth.yaml"

// defaultSource is what is told in place of its file's name where there is none.
const defaultSource = "built-in default"

// findConfig returns the configuration's file, empty for the built-in default.
func (a *app) findConfig() (string, error) {
	if a.configFile != "" {
		return a.configFile, nil
	}
	candidates := []string{configFileName}
	if dir, err := os.UserConfigDir(); err == nil { // without a home there is none
		candidates = append(candidates, filepath.Join(dir, "berth", configFileName))
	}
	for _, file := range candidates {
		_, err := os.Stat(file)
		switch {
		case err == nil:
			return file, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("looking for a configuration: %w", err)
		}
	}
	return "", nil
}

// loadConfig reads the configuration and tells where it is from.
func (a *app) loadConfig() (config host.Config, source string, err error) {
	file, err := a.findConfig()
	if err != nil {
		return host.Config{}, "", err
	}
	if file == "" {
		config, err = host.DefaultConfig()
		return config, defaultSource, err
	}
	config, err = await(a.ended, 0, func() (host.Config, error) { return host.LoadConfig(file) }) // which may be a FIFO
	return config, file, err
}

// openHost returns the host of the configuration. It starts no plugin.
func (a *app) openHost() (*host.Host, error) {
	if a.host != nil {
		return a.host, nil
	}
	config, source, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	if a.verbose {
		config.Logger = hclog.New(&hclog.LoggerOptions{
			Name: "berth", Level: hclog.Debug, Output: display.Writer{W: a.stderr}, Color: hclog.ColorOff, IndependentLevels: true,
		})
		config.Logger.Debug("configuration", "source", source)
	}
	for _, adjust := range a.adjust {
		adjust(&config)
	}
	a.unasked, a.config = source == defaultSource, config
	a.host, err = host.New(config)
	return a.host, err
}

// closeHost ends the plugins. A second one does nothing.
func (a *app) closeHost() error {
	if a.host == nil {
		return nil
	}
	h := a.host
	a.host = nil
	return h.Close()
}

// commandStdin is what a command in a workspace reads: berth's own input, unless
// a person sits there.
func (a *app) commandStdin() io.Reader {
	if _, err := a.stdin.Stat(); err != nil || term.IsTerminal(int(a.stdin.Fd())) {
		return nil
	}
	return a.stdin
}

// also adds what failed in clearing up after something to what that came to. It
// alone is a failure of berth; beside another it is told, and changes nothing: a
// command's exit code stays berth's.
func (a *app) also(err, clearing error) error {
	if err == nil {
		return clearing
	}
	if clearing != nil {
		a.say("%v", clearing)
	}
	return err
}

// say tells something on stderr, on a line of its own. Nobody may be reading.
func (a *app) say(format string, args ...any) {
	_, _ = io.WriteString(a.stderr, "berth: "+display.Text(fmt.Sprintf(format, args...))+"\n")
}
