package host

import (
	"fmt"
	"strings"

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
