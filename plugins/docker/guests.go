package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/berth-dev/berth/plugins/docker/internal/guestvolume"
	"github.com/berth-dev/berth/shared/workspace"
)

// guestName is the guest's binary in a container, and the beginning of its names
// beside the plugin.
const guestName = "berth-guest"

// guests are the guest's binaries on this machine, one for each system.
type guests struct {
	dir string

	mu    sync.Mutex
	found map[string]guestvolume.Binary // by system, such as linux-amd64
}

// findGuests looks in dir, or beside this program.
func findGuests(dir string) (*guests, error) {
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		dir = filepath.Dir(self)
	}
	return &guests{dir: dir, found: map[string]guestvolume.Binary{}}, nil
}

// binary is the guest for a system; one that is not there is fs.ErrNotExist.
func (g *guests) binary(system string) (guestvolume.Binary, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if bin, ok := g.found[system]; ok {
		return bin, nil
	}
	path := filepath.Join(g.dir, guestName+"-"+system)
	content, err := os.ReadFile(path)
	if err != nil {
		return guestvolume.Binary{}, err
	}
	sum := sha256.Sum256(content)
	bin := guestvolume.Binary{
		Name: guestName, Digest: hex.EncodeToString(sum[:]),
		// It may be replaced on the disk by then: who uses it looks.
		Read: func() ([]byte, error) { return os.ReadFile(path) },
	}
	g.found[system] = bin
	return bin, nil
}

// placement is how the guest comes into a new container.
type placement struct {
	how          string // guestInit, guestExec or guestOff
	reason       string // why it is not better
	binary       guestvolume.Binary
	volume       string // empty without a guest
	volumeLabels map[string]string
}

func (pl placement) digest() string { return pl.binary.Digest }

// place decides on the guest of a new container. The configuration's auto is
// guestInit wherever there is a binary for the engine's system.
func (p *provider) place(ctx context.Context, config checked) (placement, error) {
	if config.Guest == guestOff {
		return placement{how: guestOff, reason: "as configured"}, nil
	}
	system, err := p.architecture(ctx)
	if err != nil {
		return placement{}, err
	}
	bin, err := p.binaries.binary(system)
	if err != nil {
		reason := "there is no " + guestName + "-" + system + " in " + p.binaries.dir
		if !errors.Is(err, fs.ErrNotExist) {
			reason = err.Error()
		}
		if config.Guest != guestAuto {
			return placement{}, invalidKey("guest", "%s: %s", config.Guest, reason)
		}
		p.logger.Warn("workspaces are made without a guest: every command costs an exec of the engine", "reason", reason)
		return placement{how: guestOff, reason: reason}, nil
	}
	if config.MemLimit > 0 && config.MemLimit < minGuestMemory {
		reason := fmt.Sprintf("mem_limit %d bytes: the guest needs at least %dm", config.MemLimit, minGuestMemory>>20)
		if config.Guest != guestAuto {
			return placement{}, invalidKey("mem_limit", "%d bytes: want at least %dm with guest: %s, or guest: off", config.MemLimit, minGuestMemory>>20, config.Guest)
		}
		p.logger.Warn("workspaces are made without a guest: every command costs an exec of the engine", "reason", reason)
		return placement{how: guestOff, reason: reason}, nil
	}
	how := guestInit
	if config.Guest == guestExec {
		how = guestExec
	}
	return placement{how: how, binary: bin, volume: guestvolume.Name(bin.Digest), volumeLabels: guestvolume.Labels(bin.Digest)}, nil
}

// errNoProgram is a container whose first program is not there or cannot be run.
var errNoProgram = errors.New("the container's first program cannot be run")

// guestError is a container in which the guest does not run, for a reason that is
// the guest's and not the container's.
type guestError struct{ cause error }

func (e *guestError) Error() string { return "the guest does not run in it: " + e.cause.Error() }

func (e *guestError) Unwrap() error { return e.cause }

// noKeeper explains a container whose first program is not the guest and whose
// image has nothing that lasts.
func noKeeper(r record, err error) error {
	return fmt.Errorf("%s: with the guest not as its init (%s) a container needs the program tail, which image %s does not have, or not for this engine: %w",
		err.Error(), firstOf(r.Reason, r.Guest), r.Image, workspace.ErrInvalid)
}
