package swap

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestANewOneThatDoesNotComeUpLeavesTheOldOne(t *testing.T) {
	for version, want := range map[string]string{
		panics: "panic",
		picky:  "must", // the key that its schema wants
		exits:  "of no use",
		hangs:  "took too long",
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plain, func(_ *host.Config, p *host.Provider) {
				p.StartTimeout = time.Minute
				if version == hangs { // in which the other versions must start too
					p.StartTimeout = 10 * time.Second
				}
			})
			ws := b.workspace(t)
			if err := ws.WriteFile(t.Context(), "f", []byte("kept")); err != nil {
				t.Fatal(err)
			}
			before := b.status()
			b.install(t, version)
			err := b.Reload(t.Context(), plain)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
			var config *host.ConfigError
			if isConfig := errors.As(err, &config); isConfig != (version == picky) {
				t.Errorf("%T: %v", err, err)
			}
			after := b.status()
			if after.PID != before.PID || after.Version != versionA || after.State != "running" || after.Restarts != 0 || after.LastError != "" ||
				!strings.Contains(after.SwapError, want) || after.Leaving != 0 {
				t.Errorf("%+v", after)
			}
			if got, err := ws.ReadFile(t.Context(), "f"); err != nil || string(got) != "kept" {
				t.Errorf("%q, %v", got, err)
			}
			if res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"echo", "on"}}); err != nil || string(res.Stdout) != "on\n" {
				t.Errorf("%+v, %v", res, err)
			}
			if !slices.Contains(b.kinds(t), "swap-refused") {
				t.Errorf("events %v", b.kinds(t))
			}
			b.alone(t)
			b.swap(t, versionB)
			if st := b.status(); st.SwapError != "" {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestWorkspacesThatEndWithTheirPluginAreNotSwapped(t *testing.T) {
	b := newBed(t, plain, func(_ *host.Config, p *host.Provider) { p.IdleTimeout = 50 * time.Millisecond })
	b.install(t, temporary)
	if _, err := b.Check(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	before := b.status()
	b.install(t, versionB)
	if err := b.Reload(t.Context(), plain); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if st := b.status(); st.PID != before.PID || !strings.Contains(st.SwapError, "end with its process") {
		t.Errorf("%+v", st)
	}
}

func TestReloadOfAnUnknownProviderIsInvalid(t *testing.T) {
	b := newBed(t, plain)
	if err := b.Reload(t.Context(), "other"); !errors.Is(err, workspace.ErrInvalid) {
		t.Error(err)
	}
	if _, err := b.Events("other"); !errors.Is(err, workspace.ErrInvalid) {
		t.Error(err)
	}
	if st := b.status(); st.State != "stopped" || st.Since.IsZero() {
		t.Errorf("%+v", st)
	}
}

// TestB7_WhatAnyVersionCallsASecretStaysOne: the schema of one that is refused does
// not decide what the one that serves on may log.
func TestB7_WhatAnyVersionCallsASecretStaysOne(t *testing.T) {
	const secret = "correct-horse-battery"
	var log bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: &log})
	b := newBed(t, plain, func(c *host.Config, p *host.Provider) {
		c.Logger = logger
		p.Config["password"] = secret
	})
	for _, version := range []string{versionA, versionB, picky, versionA} {
		b.install(t, version)
		_ = b.Reload(t.Context(), plain)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Contains(text, secret) || strings.Count(text, "[redacted]") != 3 {
		t.Errorf("%s", text)
	}
	events, err := b.Events(plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if strings.Contains(e.Text, secret) {
			t.Errorf("%+v", e)
		}
	}
}
