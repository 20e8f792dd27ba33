package images

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/credentials"
	"github.com/docker/cli/cli/config/types"
	"github.com/docker/docker-credential-helpers/client"
	helper "github.com/docker/docker-credential-helpers/credentials"
	"github.com/docker/docker/api/types/registry"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// dockerHub is the domain of images that name none, and hubKey the name under
	// which its credentials are kept.
	dockerHub = "docker.io"
	hubKey    = "https://index.docker.io/v1/"
	// helperPrefix precedes the name of a credential helper in that of its program.
	helperPrefix = "docker-credential-"
	// tokenUser stands for the name of a user in credentials that are a token.
	tokenUser = "<token>"
	// helperTimeout is how long a helper may take: some ask a service for a new
	// token. One that waits for a person never ends here.
	helperTimeout = 30 * time.Second
	// helperGrace is how long a helper that was killed may hold its output open by
	// a child.
	helperGrace = time.Second
	// helperOutputLimit bounds what a helper may write. Credentials are a few KiB.
	helperOutputLimit = 1 << 20
)

// found are the credentials for one registry.
type found struct {
	header  string   // as the engine takes it, empty if there are none
	from    string   // where they are from, for people
	secrets []string // what no text may hold
	// failed is why a helper gave none. The registry may need none, so that it
	// matters only if the pull is refused.
	failed error
}

// credentialsFor returns the credentials that Docker's own client would use.
func credentialsFor(ctx context.Context, domain string) (found, error) {
	dir := engine.ConfigDir()
	file, err := config.Load(dir)
	if err != nil {
		return found{}, fmt.Errorf("the credentials for %s: %s: mend the file: %w", domain, err.Error(), workspace.ErrInvalid)
	}
	if !file.ContainsAuth() {
		file.CredentialsStore = credentials.DetectDefaultStore(file.CredentialsStore)
	}
	key := domain
	if domain == dockerHub {
		key = hubKey
	}
	var auth types.AuthConfig
	from := filepath.Join(dir, config.ConfigFileName)
	if os.Getenv(configfile.DockerEnvConfigKey) != "" {
		if auth, err = withoutHelpers(file).GetAuthConfig(key); err != nil {
			return found{}, fmt.Errorf("the credentials for %s in %s: %s: %w", domain, configfile.DockerEnvConfigKey, err.Error(), workspace.ErrInvalid)
		}
		from = configfile.DockerEnvConfigKey
	}
	if auth == (types.AuthConfig{}) {
		if name := cmp.Or(file.CredentialHelpers[key], file.CredentialsStore); name != "" {
			from = helperPrefix + name
			if auth, err = askHelper(ctx, helperTimeout, from, key); err != nil {
				if ctx.Err() != nil {
					return found{}, context.Cause(ctx)
				}
				return found{from: from, failed: err}, nil
			}
		} else if auth, err = credentials.NewFileStore(file).Get(key); err != nil {
			return found{}, fmt.Errorf("the credentials for %s in %s: %s: %w", domain, from, err.Error(), workspace.ErrInvalid)
		}
	}
	if auth == (types.AuthConfig{}) {
		return found{}, nil
	}
	header, err := registry.EncodeAuthConfig(registry.AuthConfig{
		Username: auth.Username, Password: auth.Password, Auth: auth.Auth, ServerAddress: auth.ServerAddress,
		IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken,
	})
	if err != nil {
		return found{}, fmt.Errorf("the credentials for %s from %s: %w", domain, from, err)
	}
	return found{header: header, from: from, secrets: []string{auth.Password, auth.IdentityToken, auth.RegistryToken, auth.Auth, header}}, nil
}

// withoutHelpers is the file as if it named no programs.
func withoutHelpers(file *configfile.ConfigFile) *configfile.ConfigFile {
	plain := *file
	plain.CredentialsStore, plain.CredentialHelpers = "", nil
	plain.AuthConfigs = nil
	return &plain
}

// askHelper asks a credential helper. None is no error.
func askHelper(ctx context.Context, limit time.Duration, program, key string) (types.AuthConfig, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not answered within %v", limit))
	defer cancel()
	answer, err := client.Get(func(args ...string) client.Program {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.WaitDelay = helperGrace
		return &helperProgram{cmd: cmd}
	}, key)
	switch {
	case helper.IsErrCredentialsNotFound(err):
		return types.AuthConfig{}, nil
	case ctx.Err() != nil:
		return types.AuthConfig{}, context.Cause(ctx)
	case err != nil && strings.Contains(err.Error(), exec.ErrNotFound.Error()):
		return types.AuthConfig{}, errors.New("there is no such program in PATH")
	case err != nil:
		return types.AuthConfig{}, err
	case answer.Username == "" && answer.Secret == "":
		return types.AuthConfig{}, nil
	case answer.Username == tokenUser:
		return types.AuthConfig{IdentityToken: answer.Secret, ServerAddress: key}, nil
	}
	return types.AuthConfig{Username: answer.Username, Password: answer.Secret, ServerAddress: key}, nil
}

// helperProgram runs a credential helper with a limit on what it writes.
type helperProgram struct{ cmd *exec.Cmd }

// Input gives the helper its input.
func (h *helperProgram) Input(in io.Reader) { h.cmd.Stdin = in }

// Output returns what the helper writes. If it fails, that is its reason, which
// is cut: a text that looks like credentials is none.
func (h *helperProgram) Output() ([]byte, error) {
	var out bytes.Buffer
	h.cmd.Stdout = &limited{to: &out, left: helperOutputLimit}
	err := h.cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	const reasonLimit = 300
	reason := out.Bytes()[:min(out.Len(), reasonLimit)]
	if bytes.ContainsAny(reason, "{}") {
		reason = nil
	}
	return reason, err
}

// limited is a writer that fails when it has taken enough.
type limited struct {
	to   io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("it writes too much")
	}
	l.left -= len(p)
	return l.to.Write(p)
}
