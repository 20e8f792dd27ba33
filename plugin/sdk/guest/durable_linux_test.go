package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestB3_ARunIsFoundAgain through another connect, after the first was killed:
// with all of its output, and its outcome.
func TestB3_ARunIsFoundAgain(t *testing.T) {
	for name, detached := range map[string]bool{"detached": true, "for its 10 s": false} {
		t.Run(name, func(t *testing.T) {
			m := startMachine(t, "init")
			first := m.connect(t)
			if !slices.Contains(first.Features(), workspace.FeatureAttachRun) {
				t.Fatalf("features %v", first.Features())
			}
			id := newRunID()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			stream, err := begin(ctx, first, id, "mkfifo f; echo before; read -r word <f; echo after $word; exit 5", detached)
			if err != nil {
				t.Fatal(err)
			}
			for {
				answer, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(answer.GetStdout().GetData(), []byte("before\n")) {
					break
				}
			}
			if err := m.connects[0].Process.Signal(unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			second := m.connect(t)
			if second.Hello().BootID != first.Hello().BootID {
				t.Fatal("the guest itself was started again")
			}
			if len(first.RunRegistry()) == 0 || !bytes.Equal(second.RunRegistry(), first.RunRegistry()) {
				t.Errorf("its registry of runs was %x and is %x", first.RunRegistry(), second.RunRegistry())
			}
			again := attach(ctx, t, second, id)
			if r := shell(t.Context(), second, "echo word >f"); r.err != nil {
				t.Fatalf("%+v", r)
			}
			if r := follow(again); r.err != nil || r.code != 5 || r.stdout != "before\nafter word\n" {
				t.Errorf("%+v", r)
			}
			// An outcome that was taken is forgotten.
			eventually(t, "the run is forgotten", func() bool {
				r := follow(attach(ctx, t, second, id))
				if r.err == nil {
					return false
				}
				err := wire.FromStatus(r.err)
				if !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("%v", err)
				}
				return true
			})
		})
	}
}

// TestB3_ARunEndsWithItsGuest is what no client may take for success.
func TestB3_ARunEndsWithItsGuest(t *testing.T) {
	m := startMachine(t, "init")
	c := m.connect(t)
	id := newRunID()
	stream, err := begin(t.Context(), c, id, "exec sleep 600", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(serving(t, m.role.Process.Pid), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := follow(stream); r.err == nil {
		t.Errorf("%+v", r)
	}
	eventually(t, "the run is unknown to the next guest", func() bool {
		again := m.connect(t)
		if again.Hello().BootID == c.Hello().BootID {
			return false
		}
		r := follow(attach(t.Context(), t, again, id))
		if err := wire.FromStatus(r.err); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%+v", r)
		}
		return true
	})
	eventually(t, "nothing of the command is left", func() bool {
		return !slices.ContainsFunc(below(t, m.role.Process.Pid), func(p process) bool {
			return strings.Contains(strings.Join(p.args, " "), "sleep 600")
		})
	})
}

func attach(ctx context.Context, t testing.TB, c *guest.Client, id string) runStream {
	t.Helper()
	stream, err := c.Provider().AttachRun(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// That it has ended already is told by receiving.
	_ = stream.Send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Attach{Attach: &berthv1.RunAttach{
		Workspace: c.Key(), RunId: id,
	}}})
	return stream
}
