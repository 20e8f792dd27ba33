package host

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/workspace"
)

// A budget that is wrong is told with file, line and key, and what would be right.
func TestParseConfigSaysWhatIsWrongWithABudget(t *testing.T) {
	for name, test := range map[string]struct {
		text, key string
		line      int
		want      string
	}{
		"an unknown bound":     {"providers:\n  a: {budget: {memroy: 1GiB}}", "providers.a.budget.memroy", 2, "did you mean memory?"},
		"memory as a number":   {"providers:\n  a: {budget: {memory: 268435456}}", "providers.a.budget.memory", 2, "want a size with its unit, such as 256MiB or 1GiB, not a number"},
		"memory in MB":         {"providers:\n  a: {budget: {memory: 256MB}}", "providers.a.budget.memory", 2, "such as 256MiB"},
		"too little memory":    {"providers:\n  a:\n    budget:\n      cpu: 1\n      memory: 256KiB", "providers.a.budget.memory", 5, "at least 16 MiB"},
		"soft above hard":      {"providers:\n  a:\n    budget: {memory: 1GiB, memory_soft: 2GiB}", "providers.a.budget.memory_soft", 3, "more than memory, 1 GiB"},
		"no processor":         {"providers:\n  a: {budget: {cpu: 0}}", "providers.a.budget.cpu", 2, "such as 0.5"},
		"negative processors":  {"providers:\n  a: {budget: {cpu: -1.5}}", "providers.a.budget.cpu", 2, "such as 0.5"},
		"processors as a list": {"providers:\n  a: {budget: {cpu: [1]}}", "providers.a.budget.cpu", 2, "not a list"},
		"no restarts":          {"providers:\n  a: {budget: {restarts: 0}}", "providers.a.budget.restarts", 2, "above zero, or unlimited"},
		"restarts by a word":   {"providers:\n  a: {budget: {restarts: many}}", "providers.a.budget.restarts", 2, "above zero, or unlimited"},
		"a bare window":        {"providers:\n  a: {budget: {restart_window: 10}}", "providers.a.budget.restart_window", 2, "with its unit"},
		"a budget of a word":   {"providers:\n  a: {budget: small}", "providers.a.budget", 2, "want a mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig("berth.yaml", "/", []byte(test.text), lookup(nil))
			var config *ConfigError
			if !errors.As(err, &config) || config.File != "berth.yaml" || config.Line != test.line || config.Key != test.key || !strings.Contains(config.Reason, test.want) {
				t.Errorf("%#v", err)
			}
		})
	}
}

// A program that fills in a budget itself is told the same.
func TestNewSaysWhatIsWrongWithABudget(t *testing.T) {
	for key, p := range map[string]Provider{
		"providers.a.budget.memory":         {Budget: Budget{Memory: 100}},
		"providers.a.budget.cpu":            {Budget: Budget{CPU: -1}},
		"providers.a.budget.restarts":       {Budget: Budget{Restarts: -2}},
		"providers.a.budget.restart_window": {Budget: Budget{RestartWindow: -time.Second}},
		"providers.a.budget":                {Budget: Budget{CPU: 1}, InProcess: nothing{}},
	} {
		_, err := New(Config{Providers: map[string]Provider{"a": p}})
		var config *ConfigError
		if !errors.As(err, &config) || config.Key != key || !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%s: %#v", key, err)
		}
	}
}

// nothing is a provider in this process that serves nothing.
type nothing struct{}

// Register does nothing.
func (nothing) Register(grpc.ServiceRegistrar) {}
