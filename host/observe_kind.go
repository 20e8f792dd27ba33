package host

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/berth-dev/berth/shared/workspace"
)

// Kinds of errors, as spans and figures have them. Few, and none of a plugin's
// own words.
const (
	kindPlugin      = "plugin"
	kindTimeout     = "timeout"
	kindOutputLimit = "output_limit"
	kindCanceled    = "canceled"
	kindDeadline    = "deadline_exceeded"
	kindUnavailable = "unavailable"
	kindTransient   = "transient"
	kindConfig      = "configuration"
	kindInvalid     = "invalid"
	kindUnsupported = "unsupported"
	kindNotExist    = "not_exist"
	kindExist       = "exist"
	kindPermission  = "permission"
	kindClosed      = "closed"
	kindReadOnly    = "read_only"
	kindFile        = "file" // another errno, such as EISDIR
	kindOther       = "_OTHER"
)

// errorKind is the kind of an error, empty for none.
func errorKind(err error) string {
	if err == nil {
		return ""
	}
	var (
		plugin  *workspace.PluginError
		timeout *workspace.TimeoutError
		limit   *workspace.OutputLimitError
		config  *ConfigError
		errno   syscall.Errno
	)
	switch {
	case errors.As(err, &plugin):
		return kindPlugin
	case errors.As(err, &timeout):
		return kindTimeout
	case errors.As(err, &limit):
		return kindOutputLimit
	case errors.As(err, &config):
		return kindConfig
	}
	for _, k := range []struct {
		is   error
		kind string
	}{
		{context.Canceled, kindCanceled},
		{context.DeadlineExceeded, kindDeadline},
		{workspace.ErrUnavailable, kindUnavailable},
		{workspace.ErrTransient, kindTransient},
		{workspace.ErrReadOnly, kindReadOnly},
		{errors.ErrUnsupported, kindUnsupported},
		{workspace.ErrInvalid, kindInvalid},
		{fs.ErrNotExist, kindNotExist},
		{fs.ErrExist, kindExist},
		{fs.ErrPermission, kindPermission},
		{fs.ErrClosed, kindClosed},
	} {
		if errors.Is(err, k.is) {
			return k.kind
		}
	}
	if errors.As(err, &errno) {
		return kindFile
	}
	return kindOther
}
