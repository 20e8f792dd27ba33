package engine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/connhelper"
	clicontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/docker"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/cli/opts"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/shared/workspace"
)

// The variables that Docker's own client reads.
const (
	envHost      = client.EnvOverrideHost
	envContext   = "DOCKER_CONTEXT"
	envConfig    = config.EnvOverrideConfigDir
	envTLSVerify = client.EnvTLSVerify
	envCertPath  = client.EnvOverrideCertPath
)

const (
	// defaultContext is the context that is no file: the variables, or the default
	// socket.
	defaultContext = "default"
	contextsDir    = "contexts"
)

// ConfigDir is the folder of the configuration of Docker's own client:
// DOCKER_CONFIG, or .docker in the home folder.
func ConfigDir() string {
	if dir := os.Getenv(envConfig); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		if u, err := user.Current(); err == nil {
			home = u.HomeDir
		}
	}
	return filepath.Join(home, ".docker")
}

// find finds the engine.
func find() (endpoint, error) {
	name, from, err := contextName()
	if err != nil {
		return endpoint{}, err
	}
	if name == defaultContext {
		return findInEnvironment()
	}
	return findInContext(name, from)
}

// contextName is the context to use, in Docker's own order, and what chose it.
func contextName() (name, from string, err error) {
	if os.Getenv(envHost) != "" {
		return defaultContext, envHost, nil
	}
	if name := os.Getenv(envContext); name != "" {
		return name, envContext, nil
	}
	dir := ConfigDir()
	file, err := config.Load(dir)
	if err != nil {
		// Docker's own client warns and takes the default engine, which may not be
		// the one that is meant.
		return "", "", fmt.Errorf("docker engine: which context is in use: %s: mend the file, or set %s: %w", err.Error(), envHost, workspace.ErrInvalid)
	}
	return cmp.Or(file.CurrentContext, defaultContext), filepath.Join(dir, config.ConfigFileName), nil
}

func findInEnvironment() (endpoint, error) {
	verify := os.Getenv(envTLSVerify) != ""
	certs := os.Getenv(envCertPath)
	value := os.Getenv(envHost)
	ep := endpoint{host: cmp.Or(value, client.DefaultDockerHost), from: "the default"}
	if value != "" {
		ep.from = envHost
	}
	host, err := opts.ParseHost(verify, value)
	if err != nil {
		return endpoint{}, ep.invalid("%v; it has to be like unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host", err)
	}
	ep.host = host
	// Without a port Docker's own client takes that of no TLS, also with TLS: the
	// caller has to give it. A socket needs no TLS, whatever else is set.
	if strings.HasPrefix(host, "tcp://") && (verify || certs != "") {
		dir := cmp.Or(certs, ConfigDir())
		if ep.tls, err = tlsFromFolder(dir, verify); err != nil {
			return endpoint{}, ep.invalid("its TLS files in %s (from %s): %v", dir, envCertPath, err)
		}
	}
	return ep.complete()
}

func findInContext(name, from string) (endpoint, error) {
	ep := endpoint{host: fmt.Sprintf("context %q", name), from: from}
	dir := filepath.Join(ConfigDir(), contextsDir)
	contexts := store.New(dir, store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(docker.DockerEndpoint, func() any { return &docker.EndpointMeta{} }),
	))
	metadata, err := contexts.GetMetadata(name)
	if errors.Is(err, os.ErrNotExist) || isNotFound(err) {
		return endpoint{}, ep.invalid("there is no such context in %s; \"docker context ls\" lists them", dir)
	}
	if err != nil {
		return endpoint{}, ep.invalid("%v", err)
	}
	meta, err := docker.EndpointFromContext(metadata)
	if err != nil {
		return endpoint{}, ep.invalid("%v", err)
	}
	ep.from = fmt.Sprintf("context %q of %s", name, from)
	if ep.host, err = opts.ParseHost(false, meta.Host); err != nil {
		return endpoint{}, ep.invalid("%v", err)
	}
	data, err := clicontext.LoadTLSData(contexts, name, docker.DockerEndpoint)
	if err != nil {
		return endpoint{}, ep.invalid("%v", err)
	}
	if strings.HasPrefix(ep.host, "tcp://") && (data != nil || meta.SkipTLSVerify) {
		if ep.tls, err = tlsFromData(data, meta.SkipTLSVerify); err != nil {
			return endpoint{}, ep.invalid("its TLS files: %v", err)
		}
	}
	return ep.complete()
}

// isNotFound reports whether the context store says that it has no such thing.
func isNotFound(err error) bool {
	var notFound interface{ NotFound() }
	return errors.As(err, &notFound)
}

// complete fills in how the host is reached.
func (ep endpoint) complete() (endpoint, error) {
	helper, err := connhelper.GetConnectionHelper(ep.host)
	if err != nil {
		return endpoint{}, ep.invalid("%v", err)
	}
	if helper != nil {
		ep.helper, ep.url = helper.Dialer, helper.Host
		return ep, nil
	}
	ep.url = ep.host
	parsed, err := client.ParseHostURL(ep.host)
	if err != nil {
		return endpoint{}, ep.invalid("%v", err)
	}
	ep.network, ep.addr, ep.basePath = parsed.Scheme, parsed.Host, parsed.Path
	if ep.network == "fd" {
		return endpoint{}, ep.invalid("only an engine can take a socket by its number; it has to be like unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host")
	}
	return ep, nil
}
