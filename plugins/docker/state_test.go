package docker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

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
		"an id out of range":     {internal("uids and gids must be in range 0-2147483647"), workspace.ErrInvalid},
		"a mount option":         {internal(`invalid tmpfs option ["bogus"]`), workspace.ErrInvalid},
		"a folder that is none":  {internal("error while creating mount source path '/f/x': mkdir /f: file exists"), workspace.ErrInvalid},
		"more than it has":       {internal("Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available"), workspace.ErrInvalid},
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

func TestOtherContainer_IsNotTakenForTheWorkspaces(t *testing.T) {
	c := container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{HostConfig: &container.HostConfig{NetworkMode: "container:other"}}}
	for _, err := range []error{
		fmt.Errorf("No such container: other: %w", errdefs.ErrNotFound),
		fmt.Errorf("cannot join network of a non running container: 0123: %w", errdefs.ErrConflict),
	} {
		got := refused(otherContainer(c, err))
		if !errors.Is(got, workspace.ErrInvalid) || errdefs.IsNotFound(got) || errdefs.IsConflict(got) || !strings.Contains(got.Error(), "network_mode") {
			t.Errorf("%v is %v, want ErrInvalid about network_mode", err, got)
		}
	}
	own := fmt.Errorf("No such container: 4567: %w", errdefs.ErrNotFound)
	if got := otherContainer(c, own); got != own { //nolint:errorlint // the very same
		t.Errorf("the workspace's own container is %v", got)
	}
}

func TestSaysNoContainer_OnlyOfAnEnginesAnswer(t *testing.T) {
	for text, want := range map[string]bool{
		"Error response from daemon: No such container: x":                              true,
		`no container with name or ID "x" found: no such container`:                     true,
		"request returned 404 Not Found for API route and version http://proxy/v1.41/x": false,
		"Error response from daemon: <html><head><title>404 Not Found</title></head>":   false,
	} {
		if got := saysNoContainer(errors.New(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
