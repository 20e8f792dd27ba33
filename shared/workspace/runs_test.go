package workspace_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestValidateRunID(t *testing.T) {
	for id, good := range map[string]bool{
		"run-0123456789abcdef": true, "a": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "Run": false, "a/b": false, "a\n": false, "../x": false,
	} {
		if err := workspace.ValidateRunID(id); (err == nil) != good || err != nil && !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestAttachOptionsValidate(t *testing.T) {
	for _, bad := range []workspace.AttachOptions{{StdoutOffset: -1}, {StderrOffset: -1}} {
		if err := bad.Validate(); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := (workspace.AttachOptions{StdoutOffset: 1}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestOutputGapErrorTellsHowMuchIsMissing(t *testing.T) {
	for want, gap := range map[string]workspace.OutputGapError{
		"run r: 5 bytes of stdout before offset 7 are not kept any more":                                       {RunID: "r", Stdout: 5, StdoutOffset: 7, StderrOffset: 3},
		"run r: 2 bytes of stderr before offset 3 are not kept any more":                                       {RunID: "r", Stderr: 2, StdoutOffset: 7, StderrOffset: 3},
		"run r: 5 bytes of stdout before offset 7 and 2 bytes of stderr before offset 3 are not kept any more": {RunID: "r", Stdout: 5, Stderr: 2, StdoutOffset: 7, StderrOffset: 3},
	} {
		if got := gap.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
