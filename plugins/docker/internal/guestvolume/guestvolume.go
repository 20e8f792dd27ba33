// Package guestvolume keeps the guest's binary in a volume of the engine, one for
// each version, which every container mounts read-only: so that the guest needs
// neither a shell nor a writable root in the image, nor a folder of the engine's
// machine, which may be another one.
package guestvolume

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// LabelGuest is the label of a volume: the digest of what it holds.
	LabelGuest = workspace.LabelPrefix + "guest"

	namePrefix = "berth-guest-"
	lockPrefix = "berth-guest-lock-"
	// digestPart is how much of a digest goes into a name.
	digestPart = 16
	// fileMode lets every user of a container run it.
	fileMode = 0o755
	// maxRead bounds the reading of what should be the binary.
	maxRead = 128 << 20
)

// Binary is one version of the guest for one architecture.
type Binary struct {
	// Name is the file's name in the volume.
	Name string
	// Digest is the SHA-256 of the content in hexadecimal.
	Digest string
	// Read returns the content.
	Read func() ([]byte, error)
}

// Name is the name of the volume for a digest.
func Name(digest string) string { return namePrefix + digest[:digestPart] }

// Labels are those of the volume for a digest.
func Labels(digest string) map[string]string {
	return map[string]string{workspace.LabelManaged: "true", LabelGuest: digest}
}

// Volumes fills the volumes of one engine, and remembers which it has verified.
type Volumes struct {
	engine *engine.Engine
	stale  time.Duration // lockStale

	mu    sync.Mutex
	state map[string]*state // by digest
}

type state struct {
	turn     chan struct{} // holds one value while somebody looks at it
	verified bool          // guarded by the turn
}

// New returns the volumes of an engine.
func New(eng *engine.Engine) *Volumes {
	return &Volumes{engine: eng, stale: lockStale, state: map[string]*state{}}
}

func (v *Volumes) lock(ctx context.Context, digest string) (*state, func(), error) {
	v.mu.Lock()
	s := v.state[digest]
	if s == nil {
		s = &state{turn: make(chan struct{}, 1)}
		v.state[digest] = s
	}
	v.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		return s, func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// Ensure makes sure that the volume holds the binary: it is looked at once by
// this process, and filled if need be. containerID is a container that was not
// started yet and has the volume in the folder dir; image is any that the engine
// has, for the container through which the volume is filled.
func (v *Volumes) Ensure(ctx context.Context, bin Binary, containerID, dir, image string) error {
	s, unlock, err := v.lock(ctx, bin.Digest)
	if err != nil {
		return fmt.Errorf("waiting for volume %s: %w", Name(bin.Digest), err)
	}
	defer unlock()
	if s.verified {
		return nil
	}
	same, err := v.holds(ctx, bin, containerID, dir)
	if err == nil && !same {
		err = v.fill(ctx, bin, image)
	}
	if err != nil {
		return fmt.Errorf("volume %s with the guest: %w", Name(bin.Digest), err)
	}
	s.verified = true
	return nil
}

// Forget makes the next Ensure look again.
func (v *Volumes) Forget(ctx context.Context, digest string) error {
	s, unlock, err := v.lock(ctx, digest)
	if err != nil {
		return fmt.Errorf("waiting for volume %s: %w", Name(digest), err)
	}
	defer unlock()
	s.verified = false
	return nil
}

// holds says whether the volume, as a container sees it, holds the binary.
func (v *Volumes) holds(ctx context.Context, bin Binary, containerID, dir string) (bool, error) {
	var found string
	err := v.engine.Change(ctx, "reading the guest's binary", func(ctx context.Context, c *client.Client) error {
		content, _, err := c.CopyFromContainer(ctx, containerID, path.Join(dir, bin.Name))
		if errdefs.IsNotFound(err) {
			// Of the file. One of the container is the next call's to notice.
			return nil
		}
		if err != nil {
			return err
		}
		defer content.Close()
		found, err = digestOf(content)
		return err
	})
	return found == bin.Digest, err
}

// digestOf is the digest of the one regular, executable file in an archive, or
// empty of anything else.
func digestOf(archive io.Reader) (string, error) {
	files := tar.NewReader(io.LimitReader(archive, maxRead))
	header, err := files.Next()
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if header.Typeflag != tar.TypeReg || header.FileInfo().Mode().Perm() != fileMode {
		return "", nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, files); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// archive is the binary as the engine takes it.
func archive(name string, content []byte) (*bytes.Buffer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: fileMode, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return &buffer, nil
}

// put copies the binary into a folder of a container.
func (v *Volumes) put(ctx context.Context, bin Binary, containerID, dir string) error {
	content, err := bin.Read()
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != bin.Digest {
		return fmt.Errorf("the guest's binary %s was replaced while it was used: try again: %w", bin.Name, workspace.ErrTransient)
	}
	packed, err := archive(bin.Name, content)
	if err != nil {
		return fmt.Errorf("packing the guest's binary: %w", err)
	}
	return v.engine.Change(ctx, "copying the guest's binary", func(ctx context.Context, c *client.Client) error {
		return c.CopyToContainer(ctx, containerID, dir, packed, container.CopyToContainerOptions{})
	})
}
