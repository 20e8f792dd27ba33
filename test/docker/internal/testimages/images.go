// Package testimages makes the images that the tests against a container engine
// use, from Debian's packages and the conformance probe, since a test must not
// need a registry:
//
//   - busybox: a static busybox and its applets, a user `agent` (1000), a few MB
//   - debian: a minimal Debian with Python and procps, a user `agent` (1000)
//   - scratch: the conformance probe alone as /probe, run as uid 1000: no shell,
//     no /tmp, no passwd, as in a distroless image
//
// An image carries a digest of what it was made from, and is made again only
// when that changes.
package testimages

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"
)

// Repository is what the names of all test images start with.
const Repository = "berth-test/"

// recipeLabel holds the digest of what an image was made from.
const recipeLabel = "dev.berth.test.recipe"

// importTimeout bounds the hand-over of a made image: the engine unpacks 100 MB
// on a slow disk.
const importTimeout = 5 * time.Minute

// sources is this package's own text: an image whose recipe changed is made again.
//
//go:embed *.go
var sources embed.FS

// recipe is how one image is made.
type recipe struct {
	name    string
	sources []string // the files of this package that make it
	// content holds what else the image is made from: part of its digest.
	content func(ctx context.Context) ([]byte, error)
	// write writes the root file system as a tar archive; content is as above.
	write   func(ctx context.Context, w io.Writer, content []byte) error
	changes []string // its configuration, as Dockerfile instructions
}

func recipes() []recipe { return []recipe{busybox(), debian(), scratch()} }

// Names returns the names of all images, without Repository.
func Names() []string {
	var names []string
	for _, r := range recipes() {
		names = append(names, r.name)
	}
	return names
}

// Ensure makes the image of a name, unless the engine has it as its recipe now
// is, and returns its reference. say is told what takes long.
//
// Making `busybox` and `debian` needs a Debian machine, and for `debian` root.
func Ensure(ctx context.Context, engine *client.Client, name string, say func(string)) (string, error) {
	all := recipes()
	i := slices.IndexFunc(all, func(r recipe) bool { return r.name == name })
	if i < 0 {
		return "", fmt.Errorf("make the test image %q: there are only %s", name, strings.Join(Names(), ", "))
	}
	ref := Repository + name + ":latest"
	if err := all[i].ensure(ctx, engine, ref, say); err != nil {
		return "", fmt.Errorf("make the test image %s: %w", ref, err)
	}
	return ref, nil
}

func (r recipe) ensure(ctx context.Context, engine *client.Client, ref string, say func(string)) error {
	content, digest, err := r.read(ctx)
	if err != nil {
		return err
	}
	if _, found, err := find(ctx, engine, ref); err != nil || found == digest {
		return err
	}
	unlock, err := lock(ctx, "berth-test-image-"+r.name)
	if err != nil {
		return err
	}
	defer unlock()
	// Who held the lock may have made it.
	old, found, err := find(ctx, engine, ref)
	if err != nil || found == digest {
		return err
	}
	say("making " + ref)
	if err := r.make(ctx, engine, ref, digest, content); err != nil {
		return err
	}
	if old != "" {
		// The old one has lost its name; a container that still uses it keeps it.
		_, _ = engine.ImageRemove(ctx, old, image.RemoveOptions{})
	}
	return nil
}

// read returns what the image is made from beside the recipe, and the digest of both.
func (r recipe) read(ctx context.Context) ([]byte, string, error) {
	h := sha256.New()
	for _, name := range r.sources {
		text, err := sources.ReadFile(name)
		if err != nil {
			return nil, "", err
		}
		h.Write(text)
	}
	var content []byte
	if r.content != nil {
		var err error
		if content, err = r.content(ctx); err != nil {
			return nil, "", err
		}
		h.Write(content)
	}
	return content, hex.EncodeToString(h.Sum(nil)), nil
}

// find returns the id and the recipe's digest of an image that may not exist.
func find(ctx context.Context, engine *client.Client, ref string) (id, digest string, err error) {
	found, err := engine.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	if found.Config != nil {
		digest = found.Config.Labels[recipeLabel]
	}
	return found.ID, digest, nil
}

func (r recipe) make(ctx context.Context, engine *client.Client, ref, digest string, content []byte) error {
	var root bytes.Buffer
	if err := r.write(ctx, &root, content); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	answer, err := engine.ImageImport(ctx, image.ImportSource{Source: &root, SourceName: "-"}, ref, image.ImportOptions{
		Changes: append([]string{"LABEL " + recipeLabel + "=" + digest}, r.changes...),
	})
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer answer.Close()
	// The engine answers 200 at once, and an error only in the stream.
	for messages := json.NewDecoder(answer); ; {
		var m jsonmessage.JSONMessage
		if err := messages.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("import: read the engine's answer: %w", err)
		}
		if m.Error != nil {
			return fmt.Errorf("import: %w", m.Error)
		}
	}
}
