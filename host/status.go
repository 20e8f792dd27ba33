package host

import "github.com/berth-dev/berth/shared/workspace"

// ProviderStatus tells how a provider is.
type ProviderStatus struct {
	// Name is the configured one, Plugin the NAME of its binary.
	Name   string `json:"name"`
	Plugin string `json:"plugin"`
	// State is the supervisor's word, such as "stopped" or "running".
	State string `json:"state"`
	// Version, Path and Digest are of the binary, as far as it was started.
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// PID is the plugin's process, zero if none runs.
	PID int `json:"pid,omitempty"`
	// Restarts counts how often it had to be started again.
	Restarts int `json:"restarts"`
	// InFlight counts the calls that it is answering.
	InFlight int `json:"in_flight"`
	// LastError is what last went wrong with the process or its start.
	LastError string `json:"last_error,omitempty"`
	// Features are what workspaces of it may have, and what it has itself.
	Features []workspace.Feature `json:"features,omitempty"`
	// Ephemeral says that its workspaces die with its process.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Deviations are the contract's rules that it does not keep.
	Deviations []Deviation `json:"deviations,omitempty"`
	// Environment names the conventional variables that were sent to it.
	Environment []string `json:"environment,omitempty"`
}

// Deviation is a rule of the contract that a provider does not keep, and why.
type Deviation struct {
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
}

// Providers tells the status of every configured provider, sorted by name. It
// starts nothing and never blocks.
func (h *Host) Providers() []ProviderStatus { panic("being written") }
