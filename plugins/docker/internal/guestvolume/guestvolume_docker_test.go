//go:build docker

package guestvolume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/docker/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/somewhere"

// bed is a volume that no other test has, and a container that shows it.
type bed struct {
	client    *client.Client
	engine    *engine.Engine
	binary    Binary
	image     string
	container string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{client: enginetest.Client(t), image: enginetest.Image(t, "scratch")}
	unique := enginetest.Unique(t)
	content := []byte(strings.Repeat("the guest of "+unique+"\n", 10_000))
	sum := sha256.Sum256(content)
	b.binary = Binary{Name: "guest", Digest: hex.EncodeToString(sum[:]), Read: func() ([]byte, error) { return content, nil }}
	t.Cleanup(func() {
		_ = b.client.VolumeRemove(context.WithoutCancel(t.Context()), Name(b.binary.Digest), true)
	})
	eng, err := engine.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = eng.Close() })
	b.engine = eng
	b.container = b.make(t, unique)
	return b
}

// make creates a container with the volume.
func (b *bed) make(t *testing.T, name string) string {
	t.Helper()
	made, err := b.client.ContainerCreate(t.Context(), &container.Config{Image: b.image}, &container.HostConfig{Mounts: []mount.Mount{{
		Type: mount.TypeVolume, Source: Name(b.binary.Digest), Target: dir, ReadOnly: true,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: Labels(b.binary.Digest)},
	}}}, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.client.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, container.RemoveOptions{Force: true})
	})
	return made.ID
}

func (b *bed) ensure(t *testing.T, v *Volumes) error {
	t.Helper()
	return v.Ensure(t.Context(), b.binary, b.container, dir, b.image)
}

func (b *bed) holds(t *testing.T) bool {
	t.Helper()
	same, err := New(b.engine).holds(t.Context(), b.binary, b.container, dir)
	if err != nil {
		t.Fatal(err)
	}
	return same
}

func TestEnsure_FillsFromManyProcessesAtOnce(t *testing.T) {
	b := newBed(t)
	var wg sync.WaitGroup
	for range 5 {
		v := New(b.engine)
		wg.Go(func() {
			if err := b.ensure(t, v); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if !b.holds(t) {
		t.Error("the volume does not hold the binary")
	}
}

func TestEnsure_ReplacesAnythingElse(t *testing.T) {
	b := newBed(t)
	other := b.binary
	content := []byte("something else")
	sum := sha256.Sum256(content)
	other.Read = func() ([]byte, error) { return content, nil }
	v := New(b.engine)
	other.Digest = hex.EncodeToString(sum[:])
	// Under the digest's own name, as a filling that was cut short leaves it.
	id, err := v.claim(t.Context(), b.binary, "berth-guest-lock-"+b.binary.Digest[:digestPart], b.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.put(t.Context(), other, id, fillDir); err != nil {
		t.Fatal(err)
	}
	if err := v.remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if b.holds(t) {
		t.Fatal("the test has put nothing else there")
	}
	if err := b.ensure(t, v); err != nil {
		t.Fatal(err)
	}
	if !b.holds(t) {
		t.Error("the volume does not hold the binary")
	}
}

func TestEnsure_BreaksALockWhoseHolderIsGone(t *testing.T) {
	b := newBed(t)
	v := New(b.engine)
	v.stale = 300 * time.Millisecond
	if _, err := v.claim(t.Context(), b.binary, "berth-guest-lock-"+b.binary.Digest[:digestPart], b.image); err != nil {
		t.Fatal(err)
	}
	if err := b.ensure(t, v); err != nil {
		t.Fatal(err)
	}
	if !b.holds(t) {
		t.Error("the volume does not hold the binary")
	}
}

func TestEnsure_LooksOnceAndAgainWhenToldTo(t *testing.T) {
	b := newBed(t)
	v := New(b.engine)
	if err := b.ensure(t, v); err != nil {
		t.Fatal(err)
	}
	// Nothing is looked at: this container is not there.
	if err := v.Ensure(t.Context(), b.binary, "no-such-container", dir, b.image); err != nil {
		t.Errorf("once verified: %v", err)
	}
	if err := v.Forget(t.Context(), b.binary.Digest); err != nil {
		t.Fatal(err)
	}
	if err := b.ensure(t, v); err != nil {
		t.Errorf("looked at again: %v", err)
	}
}

func TestEnsure_RefusesABinaryThatHasChanged(t *testing.T) {
	b := newBed(t)
	b.binary.Read = func() ([]byte, error) { return []byte("a newer one"), nil }
	if err := b.ensure(t, New(b.engine)); !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("error %v, want ErrTransient", err)
	}
	if _, err := b.client.ContainerInspect(t.Context(), "berth-guest-lock-"+b.binary.Digest[:digestPart]); err == nil {
		t.Error("the lock is still held")
	}
}
