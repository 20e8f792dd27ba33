package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestSentinelsAreApart(t *testing.T) {
	sentinels := []error{
		workspace.ErrInvalid, workspace.ErrUnavailable, workspace.ErrTransient, workspace.ErrReadOnly,
		errors.ErrUnsupported, fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrClosed, context.Canceled, context.DeadlineExceeded,
	}
	for i, a := range sentinels {
		for j, b := range sentinels {
			if (i == j) != errors.Is(a, b) {
				t.Errorf("errors.Is(%v, %v) is %v", a, b, i != j)
			}
		}
	}
}

func TestErrorTexts(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&workspace.TimeoutError{Timeout: 1500 * time.Millisecond}, "command stopped: its timeout of 1.5s passed"},
		{&workspace.TimeoutError{Timeout: time.Hour, Ceiling: true}, "command stopped: the provider's own limit of 1h0m0s passed"},
		{&workspace.TimeoutError{Timeout: time.Second, Survivors: "pid 7: of another user"}, "command stopped: its timeout of 1s passed; not stopped: pid 7: of another user"},
		{&workspace.OutputLimitError{Limit: 10}, "command stopped: more than 10 bytes of output"},
		{&workspace.OutputLimitError{Limit: 10, Survivors: "pid 7"}, "command stopped: more than 10 bytes of output; not stopped: pid 7"},
		{
			&workspace.PluginError{Provider: "docker", Op: "run", RunID: "r1", PID: 42, ExitStatus: "signal: killed", Stderr: []string{"a", "b"}, MayHaveExecuted: true, Reason: "the plugin died"},
			"provider docker: run r1: the plugin died (plugin pid 42, signal: killed, the call may have been carried out); its last lines: a | b",
		},
		{
			&workspace.PluginError{Provider: "docker", Op: "start", Reason: "not found"},
			"provider docker: start: not found (the call was not carried out)",
		},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// A plugin's failure says nothing of whether a retry is safe but in
// MayHaveExecuted, so it is no ErrTransient; and a timeout is the command's own,
// never a context's (contract B2, C6).
func TestTypedErrorsMatchNoSentinel(t *testing.T) {
	plugin := &workspace.PluginError{Provider: "docker", Op: "run"}
	if !plugin.Temporary() {
		t.Error("a PluginError is not temporary")
	}
	for _, err := range []error{plugin, &workspace.TimeoutError{}, &workspace.OutputLimitError{}} {
		for _, sentinel := range []error{
			workspace.ErrInvalid, workspace.ErrUnavailable, workspace.ErrTransient, workspace.ErrReadOnly,
			errors.ErrUnsupported, fs.ErrNotExist, context.Canceled, context.DeadlineExceeded,
		} {
			if errors.Is(fmt.Errorf("wrapped: %w", err), sentinel) {
				t.Errorf("%T is %v", err, sentinel)
			}
		}
	}
}

func TestErrorTextsHideOutput(t *testing.T) {
	out := []byte("hunter2")
	for _, err := range []error{
		&workspace.TimeoutError{Stdout: out, Stderr: out},
		&workspace.OutputLimitError{Stdout: out, Stderr: out},
	} {
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v tells the output", err)
		}
	}
}
