package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/internal/display"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/host/gateway"
	"github.com/berth-dev/berth/shared/workspace"
)

// tokenVariable holds the service's token where nothing else says it.
const tokenVariable = "BERTH_TOKEN"

// maxTokenFile is far more than a token, and keeps a file that is none from being
// read.
const maxTokenFile = 64 << 10

// shutdownTimeout bounds giving back what the gateway holds in its store, after its
// requests have been answered.
const shutdownTimeout = 10 * time.Second

// serveFlags override what the configuration says.
type serveFlags struct {
	listen, tokenFile, store string
	watch                    *bool // nil: as the configuration says, true if it does not
	admin                    adminSocketFlag
}

func newServeCommand(a *app) *cobra.Command {
	var flags serveFlags
	var watch bool
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Serve workspaces over HTTP",
		Long: `serve answers over HTTP, in the protocol of sandboxd, the service of
pydantic-ai-backend, so that its clients work with every provider. Which
workspaces clients may ask for, and how many, is said in the section gateway of
berth.yaml; without one each provider is a runtime of its own name.

Clients need the service's token: that of --token-file, else of the
configuration, else $BERTH_TOKEN. When it is ready serve prints one line with its
address. A plugin whose binary is replaced is swapped while it runs; SIGHUP, or berth
reload, has all of them swapped. Told to end, it answers the requests that it has,
for some seconds at most; workspaces live on, and so do sessions, which the next
serve finds again.`,
		Example: `  BERTH_TOKEN=$(openssl rand -hex 32) berth serve
  berth serve --listen unix:/run/berth.sock --token-file /run/secrets/berth
  berth serve --store postgres://berth@db/berth`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("watch-plugins") {
				flags.watch = &watch
			}
			return a.serve(cmd.Context(), flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.listen, "listen", "", "`ADDRESS` to listen at: HOST:PORT, or unix:PATH (default "+gateway.DefaultListen+")")
	f.StringVar(&flags.tokenFile, "token-file", "", "`FILE` that holds the service's token")
	f.StringVar(&flags.store, "store", "", "where sessions are kept: sqlite:PATH, or a `URL` postgres://… that several share")
	f.BoolVar(&watch, "watch-plugins", true, "swap a plugin when its binary is replaced; watch_plugins in the configuration says the same")
	flags.admin.add(cmd)
	fixCompletion(cmd, "listen")
	fixCompletion(cmd, "store")
	return cmd
}

func (a *app) serve(ctx context.Context, flags serveFlags) (err error) {
	a.adjust = append(a.adjust, func(c *host.Config) {
		if c.WatchPlugins = c.WatchPluginsOr(true); flags.watch != nil {
			c.WatchPlugins = *flags.watch
		}
	})
	observed, err := a.observe(ctx)
	if err != nil {
		return err
	}
	defer observed.end(ctx)
	h, err := a.openHost()
	if err != nil {
		return err
	}
	config, err := a.gatewayConfig(flags)
	if err != nil {
		return err
	}
	config.Host = h
	observed.gateway(&config)
	g, err := gateway.New(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		err = a.also(err, g.Shutdown(shutdown))
	}()
	if err := a.checkRuntimes(ctx, g); err != nil {
		return err
	}
	l, err := g.Listen(ctx)
	if err != nil {
		return err
	}
	if g.Exposed(l) {
		a.say("warning: %s is reached from other machines without TLS: tokens and all that is in workspaces travel in clear; set gateway.tls, or put a proxy with TLS before a loopback address", l.Addr())
	}
	stop, err := a.attend(ctx, h, g.URL(l), flags.admin, config.Logger)
	if err != nil {
		l.Close()
		return err
	}
	defer func() { err = a.also(err, stop()) }()
	// It may be a pipe whose reader has all that it wanted.
	_, _ = fmt.Fprintf(a.stdout, "berth serves at %s\n", g.URL(l))
	a.notifyManager(ctx, managerReady)
	return g.Serve(ctx, l)
}

// checkTimeout bounds the start of plugins that runtimes override something of: one
// that takes longer, as where its engine does not answer, does not keep the gateway
// from serving.
const checkTimeout = 30 * time.Second

// checkRuntimes tells at the start, not at the first open, what a runtime overrides
// that its provider does not have.
func (a *app) checkRuntimes(ctx context.Context, g *gateway.Gateway) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return g.CheckRuntimes(ctx)
}

// gatewayConfig is what the configuration says, the flags, and the environment.
func (a *app) gatewayConfig(flags serveFlags) (gateway.Config, error) {
	config, err := gateway.LoadConfig(a.config)
	if err != nil {
		return config, err
	}
	config.Version = version
	config.Logger = a.serviceLogger()
	if flags.listen != "" {
		config.Listen = flags.listen
	}
	if flags.store != "" {
		config.Store = flags.store
	}
	switch {
	case flags.tokenFile != "":
		if config.Token, err = a.readToken(flags.tokenFile); err != nil {
			return config, err
		}
	case config.Token == "":
		config.Token = os.Getenv(tokenVariable)
	}
	if config.Token == "" {
		return config, fmt.Errorf(`no token, without which nobody could be told apart: set gateway.token in the configuration, as in token: "${%s}", or --token-file, or $%s: %w`,
			tokenVariable, tokenVariable, workspace.ErrInvalid)
	}
	if len(config.Runtimes) == 0 {
		return config, fmt.Errorf("no provider to serve: configure one, see berth providers: %w", workspace.ErrInvalid)
	}
	return config, nil
}

// readToken reads a file that holds a token, and perhaps a newline.
func (a *app) readToken(path string) (string, error) {
	data, err := await(a.ended, 0, func() ([]byte, error) { // which may be a FIFO
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return io.ReadAll(io.LimitReader(file, maxTokenFile+1))
	})
	switch token := strings.TrimSpace(string(data)); {
	case err != nil:
		return "", fmt.Errorf("--token-file: %w", err)
	case len(data) > maxTokenFile:
		return "", fmt.Errorf("--token-file: %s is over %d bytes: is it a token? %w", filepath.Clean(path), maxTokenFile, workspace.ErrInvalid)
	case token == "":
		return "", fmt.Errorf("--token-file: %s is empty: %w", filepath.Clean(path), workspace.ErrInvalid)
	default:
		return token, nil
	}
}

// serviceLogger tells what an operator must know, and with -v everything.
func (a *app) serviceLogger() hclog.Logger {
	level := hclog.Warn
	if a.verbose {
		level = hclog.Debug
	}
	return hclog.New(&hclog.LoggerOptions{
		Name: "berth.gateway", Level: level, Output: display.Writer{W: a.stderr}, Color: hclog.ColorOff,
	})
}

// checkGateway says whether the gateway's section can be read.
func (a *app) checkGateway() error {
	_, err := gateway.LoadConfig(a.config)
	return err
}
