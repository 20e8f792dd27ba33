package admin

import (
	"context"
	"time"

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

// Story is what a serve knows of one provider.
type Story struct {
	Serve    About               `json:"serve"`
	Provider host.ProviderStatus `json:"provider"`
	// Events are what happened to its plugin, the newest last.
	Events []host.Event `json:"events"`
}

// Host is what the socket of a serve gives access to: a [*host.Host].
type Host interface {
	Providers() []host.ProviderStatus
	Check(ctx context.Context, provider string) (host.ProviderStatus, error)
	Reload(ctx context.Context, provider string) error
	Events(provider string) ([]host.Event, error)
}

// reloadRequest names the providers, none for all.
type reloadRequest struct {
	Providers []string `json:"providers"`
}

type reloadAnswer struct {
	Serve   About      `json:"serve"`
	Reloads []Reloaded `json:"reloads"`
}

// fault is the body of every answer that is no 2xx.
type fault struct {
	Error string `json:"error"`
}
