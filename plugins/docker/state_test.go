package docker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestRefused_TellsWhatNoOtherTryWillMend(t *testing.T) {
	internal := func(text string) error {
		return fmt.Errorf("Error response from daemon: %s: %w", text, errdefs.ErrInternal)
	}
	for name, test := range map[string]struct {
		err  error
		want error // nil: as it was
	}{
		"an unknown runtime":     {internal("Unknown runtime specified runsc"), workspace.ErrInvalid},
		"a runtime, newer":       {internal("unknown or invalid runtime name: runsc"), workspace.ErrInvalid},
		"a missing program":      {internal(`OCI runtime create failed: exec: "/.berth/bin/berth-guest": stat /.berth/bin/berth-guest: no such file or directory: unknown`), errNoProgram},
		"another processor":      {internal("exec /bin/tail: exec format error"), errNoProgram},
		"a mount that is not":    {internal(`OCI runtime create failed: error mounting "/x" to rootfs: no such file or directory: unknown`), workspace.ErrInvalid},
		"an unknown user":        {internal("unable to find user x: no matching entries in passwd file"), workspace.ErrInvalid},
		"an unknown network":     {fmt.Errorf("network x not found: %w", errdefs.ErrNotFound), workspace.ErrInvalid},
		"a container that went":  {fmt.Errorf("No such container: x: %w", errdefs.ErrNotFound), nil},
		"a name that is taken":   {fmt.Errorf("the name is in use: %w", errdefs.ErrConflict), nil},
		"an engine that is busy": {internal("context deadline exceeded"), nil},
	} {
		got := refused(test.err)
		switch {
		case test.want == nil && got != test.err: //nolint:errorlint // the very same
			t.Errorf("%s: %v, want it as it was", name, got)
		case test.want != nil && !errors.Is(got, test.want):
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	// What the engine does not show is not a container that has vanished.
	if errdefs.IsNotFound(refused(fmt.Errorf("network x not found: %w", errdefs.ErrNotFound))) {
		t.Error("a network that is not there is taken for a container")
	}
	if refused(nil) != nil {
		t.Error("success is refused")
	}
}
