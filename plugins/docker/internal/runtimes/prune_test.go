//go:build docker

package runtimes

import (
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
)

// prune removes what is superseded by a reference, however young it is.
func (b bed) prune(t *testing.T, keep string) {
	t.Helper()
	if _, err := prune(t.Context(), b.eng, 0, filters.Arg("label", labelName+"="+b.name), keep, removeImage); err != nil {
		t.Fatal(err)
	}
}

func TestSupersededImages(t *testing.T) {
	b := newBed(t)
	recipe := func(text string) Runtime {
		return b.runtime(t, "busybox", map[string]any{keySetupCommands: []string{"echo " + text + " >/text"}})
	}
	first, _ := b.ensure(t, recipe("one"))
	second, _ := b.ensure(t, recipe("two"))
	if n := len(b.images(t)); n != 2 {
		t.Fatalf("%d images: one that was used a moment ago is gone", n)
	}
	used, err := b.client.ContainerCreate(t.Context(), &container.Config{Image: first.Ref}, nil, nil, nil, b.name)
	if err != nil {
		t.Fatal(err)
	}
	b.prune(t, second.Ref)
	if n := len(b.images(t)); n != 2 {
		t.Fatalf("%d images: one that a container uses is gone", n)
	}
	if err := b.client.ContainerRemove(t.Context(), used.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	// Someone's own name for it keeps the image, and ours goes.
	if err := b.client.ImageTag(t.Context(), first.Ref, b.name+"/kept:latest"); err != nil {
		t.Fatal(err)
	}
	b.prune(t, second.Ref)
	if _, err := b.client.ImageInspect(t.Context(), first.Ref); err == nil {
		t.Error("a superseded image that nothing uses has its name still")
	}
	b.inspect(t, b.name+"/kept:latest")
	if got := b.sh(t, second.Ref, "cat /text"); got != "two\n" {
		t.Errorf("the current one says %q", got)
	}
	// And it is made again when it is wanted again.
	again, told := b.ensure(t, recipe("one"))
	if len(told) == 0 || b.sh(t, again.Ref, "cat /text") != "one\n" {
		t.Errorf("again %+v, told %q", again, told)
	}
}

// An image that somebody has made of a workspace has its labels.
func TestPruneLeavesWhatWasMadeOfAWorkspace(t *testing.T) {
	b := newBed(t)
	made, _ := b.ensure(t, b.runtime(t, "busybox", nil))
	labels := map[string]string{labelManaged: "true", labelToken: b.name}
	c, err := b.client.ContainerCreate(t.Context(), &container.Config{Image: made.Ref, Labels: labels}, nil, nil, nil, b.name)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := b.client.ContainerCommit(t.Context(), c.ID, container.CommitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.client.ContainerRemove(t.Context(), c.ID, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	b.prune(t, made.Ref)
	b.inspect(t, saved.ID)
	// The image that it was made of is removed at the end, which must come first.
	if _, err := b.client.ImageRemove(t.Context(), saved.ID, image.RemoveOptions{}); err != nil {
		t.Error(err)
	}
}

func TestPruneLeavesWhatWasUsedLately(t *testing.T) {
	b := newBed(t)
	made, _ := b.ensure(t, b.runtime(t, "busybox", nil))
	removed, err := Prune(t.Context(), b.eng, time.Hour, false)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(removed, made.Ref) {
		t.Errorf("removed %v", removed)
	}
	b.inspect(t, made.Ref)
}

// A use is noted: an image that is old, and in use each day, is not superseded
// by one that was built in between.
func TestUseIsMarked(t *testing.T) {
	b := newBed(t)
	made, _ := b.ensure(t, b.runtime(t, "busybox", nil))
	before := b.inspect(t, made.Ref)
	if b.podman(t) { // it does not keep that time
		return
	}
	old := before
	old.Metadata.LastTagTime = time.Now().Add(-markEvery - time.Minute)
	markUsed(t.Context(), b.eng, made.Ref, &old)
	after := b.inspect(t, made.Ref)
	if !after.Metadata.LastTagTime.After(before.Metadata.LastTagTime) || after.ID != before.ID {
		t.Errorf("last use %v, before %v", after.Metadata.LastTagTime, before.Metadata.LastTagTime)
	}
	markUsed(t.Context(), b.eng, made.Ref, &after)
	if again := b.inspect(t, made.Ref); !again.Metadata.LastTagTime.Equal(after.Metadata.LastTagTime) {
		t.Error("each use costs a change")
	}
}
