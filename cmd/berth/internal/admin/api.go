package admin

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
)

// apiVersion begins every path. What a later berth adds to version 1 are members
// and calls; what it changes has another version.
const apiVersion = "v1"

// About is a running serve.
type About struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Config is the configuration's file, empty for the built-in one.
	Config string `json:"config,omitempty"`
	// Address is where it serves.
	Address string `json:"address"`
}

// Status is what a serve tells of itself and of its providers.
type Status struct {
	Serve     About                 `json:"serve"`
	Providers []host.ProviderStatus `json:"providers"`
}

// Story is what is known of one provider.
type Story struct {
	// Serve is the one that tells; nil where none runs, and only the search is told.
	Serve    *About              `json:"serve"`
	Provider host.ProviderStatus `json:"provider"`
	Search   host.PluginSearch   `json:"search"`
	LogLevel LogLevel            `json:"log_level"`
	// Events are what happened to its plugin, the newest last.
	Events []host.Event `json:"events"`
}

// LogLevel is from what level on a provider's records are logged.
type LogLevel struct {
	Level string `json:"level"`
	// Own says that it was set for this provider. Otherwise it is that of the serve.
	Own bool `json:"own"`
}

// Host is what the socket of a serve gives access to: a [*host.Host].
type Host interface {
	Providers() []host.ProviderStatus
	Reload(ctx context.Context, provider string) error
	Events(provider string) ([]host.Event, error)
	Search(provider string) (host.PluginSearch, error)
	LogLevel(provider string) (level hclog.Level, own bool, err error)
	SetLogLevel(provider string, level hclog.Level) error
}

// reloadRequest names the providers, none for all.
type reloadRequest struct {
	Providers []string `json:"providers"`
}

type reloadAnswer struct {
	Serve   About      `json:"serve"`
	Reloads []Reloaded `json:"reloads"`
}

// levelRequest sets a log level: trace to error, off, or [DefaultLevel].
type levelRequest struct {
	Level string `json:"level"`
}

// DefaultLevel takes back a level that was set.
const DefaultLevel = "default"

// levelAnswer may have a warning beside the level, which holds in any case.
type levelAnswer struct {
	LogLevel
	Warning string `json:"warning,omitempty"`
}

// fault is the body of every answer that is no 2xx.
type fault struct {
	Error string `json:"error"`
}
