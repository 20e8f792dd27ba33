package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// ConfigError is a fault in a configuration. It wraps [workspace.ErrInvalid] and
// never holds a value of the configuration, which may be a secret (contract B7).
type ConfigError struct {
	// File and Line tell where it is, empty and zero where not known.
	File string
	Line int
	// Key is the path of the key, such as providers.docker.config.image.
	Key string
	// Reason says what is wrong and what would be right.
	Reason string
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Key != "" {
		fmt.Fprintf(&b, "%s: ", e.Key)
	}
	return b.String() + e.Reason
}

// Unwrap makes it a [workspace.ErrInvalid].
func (e *ConfigError) Unwrap() error { return workspace.ErrInvalid }

// foreign reads a status without a detail of ours: that of a plugin which is
// not made with our SDK, or of gRPC itself in a plugin that lacks the call.
func (p *provider) foreign(st *status.Status) error {
	return wire.FromStatus(status.Error(st.Code(), p.said(st)))
}

// said is a status's text, fit for an error: it is redacted before it is cut.
func (p *provider) said(st *status.Status) string {
	return shorten(p.redact(strings.ToValidUTF8(st.Message(), "?")))
}

// tooLarge tells apart the three that gRPC calls RESOURCE_EXHAUSTED: a message
// of ours over the cap, an answer over it, and a plugin's word for a limit.
func (p *provider) tooLarge(inst *supervisor.Instance, op operation, st *status.Status) error {
	text := st.Message()
	switch {
	case strings.Contains(text, "trying to send message larger than max"):
		return op.wrap(fmt.Errorf("the request is over the cap of %d MiB a message: %w", wire.MaxMessage>>20, errTooBig))
	case strings.Contains(text, "received message larger than max"), strings.Contains(text, "message after decompression larger than max"):
		return p.fault(inst, op, fmt.Sprintf("a message over the cap of %d MiB", wire.MaxMessage>>20))
	}
	return op.wrap(fmt.Errorf("%s: %w", p.said(st), workspace.ErrTransient))
}

// errTooBig is what execve says of arguments that no system takes (contract C1).
var errTooBig = fmt.Errorf("%w: %w", workspace.ErrInvalid, syscall.E2BIG)

// pathError gives an error about a file the caller's own path and operation
// (contract F3). What is about the workspace and not about a file stays as it is.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if cause := fileCause(err); cause != nil {
		return &fs.PathError{Op: op, Path: path, Err: cause}
	}
	return err
}

// linkError is pathError for two paths, as in os.
func linkError(op, from, to string, err error) error {
	if err == nil {
		return nil
	}
	if cause := fileCause(err); cause != nil {
		return &os.LinkError{Op: op, Old: from, New: to, Err: cause}
	}
	return err
}

// fileCause returns what is wrong with a file, without operation and path, or nil
// if err is not about a file.
func fileCause(err error) error {
	var plug *workspace.PluginError
	if errors.As(err, &plug) {
		return nil
	}
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &linkErr):
		return linkErr.Err
	case errors.As(err, &pathErr):
		return pathErr.Err
	}
	if errors.Is(err, workspace.ErrUnavailable) || errors.Is(err, workspace.ErrTransient) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errClosed) {
		return nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
