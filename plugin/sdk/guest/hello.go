package guest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/wire/guestv1"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// maxHello is the largest answer to a greeting, in bytes: that of the longest
	// working directory, with room for what newer guests add.
	maxHello = 16 << 10
	// maxVersion is how much of a guest's version is kept, in bytes.
	maxVersion = 256
	// maxPath is the longest path that Linux knows, without its NUL.
	maxPath = 4095
	// maxFeatures and maxFeature bound what a guest announces: how many, and how
	// long each is in bytes.
	maxFeatures = 256
	maxFeature  = 64
	// bootIDSize is in bytes.
	bootIDSize = 16
)

// Hello is what a guest says of itself, checked for its form but not for its
// truth.
type Hello struct {
	// Protocol is the one that both sides use from here on.
	Protocol int
	// Version is the guest's, in printable ASCII.
	Version string
	// Digest is the SHA-256 of the guest's binary.
	Digest [sha256.Size]byte
	// BootID changes whenever the guest was started again. Then no run is left of
	// those that it knew.
	BootID [bootIDSize]byte
	// WorkingDir is absolute and canonical.
	WorkingDir string
	// UID and GID are the user as whom all commands run.
	UID, GID uint32

	workspaceID string
}

// readHello checks a greeting. The protocol comes first: of a guest that speaks
// another one nothing else is known.
func readHello(answer *guestv1.HelloResponse, clientVersion string) (Hello, error) {
	from, to := int(answer.GetProtocolMin()), int(answer.GetProtocolMax())
	if from < 1 || to < from {
		return Hello{}, fmt.Errorf("the guest says that it speaks protocols %d to %d", from, to)
	}
	version := printable(answer.GetVersion())
	protocol, ok := agree(from, to)
	if !ok {
		return Hello{}, &ProtocolError{
			GuestVersion: version, GuestMin: from, GuestMax: to,
			ClientVersion: clientVersion, ClientMin: protocolMin, ClientMax: protocolMax,
		}
	}
	hello := Hello{
		Protocol: protocol, Version: version, WorkingDir: string(answer.GetWorkingDir()),
		UID: answer.GetUid(), GID: answer.GetGid(), workspaceID: answer.GetWorkspaceId(),
	}
	if copy(hello.Digest[:], answer.GetDigest()) != sha256.Size || len(answer.GetDigest()) != sha256.Size {
		return Hello{}, fmt.Errorf("the guest's digest has %d bytes, want %d", len(answer.GetDigest()), sha256.Size)
	}
	if copy(hello.BootID[:], answer.GetBootId()) != bootIDSize || len(answer.GetBootId()) != bootIDSize {
		return Hello{}, fmt.Errorf("the guest's boot id has %d bytes, want %d", len(answer.GetBootId()), bootIDSize)
	}
	if err := checkDir(hello.WorkingDir); err != nil {
		return Hello{}, err
	}
	if _, err := workspace.DecodeID(hello.workspaceID); err != nil {
		return Hello{}, fmt.Errorf("the guest's workspace: %w", withoutKind(err))
	}
	return hello, nil
}

// readOpened checks what a guest says of its workspace.
func readOpened(opened *berthv1.Opened, hello Hello) ([]workspace.Feature, error) {
	switch {
	case opened.GetId() != hello.workspaceID:
		return nil, fmt.Errorf("the guest opened workspace %.80q, and has %q", opened.GetId(), hello.workspaceID)
	case string(opened.GetWorkingDir()) != hello.WorkingDir:
		return nil, fmt.Errorf("the guest's workspace is in %.80q, and it said %q", opened.GetWorkingDir(), hello.WorkingDir)
	case len(opened.GetRunRegistry()) > wire.MaxRunRegistry:
		return nil, fmt.Errorf("the guest's registry of runs has %d bytes, at most %d are right", len(opened.GetRunRegistry()), wire.MaxRunRegistry)
	case len(opened.GetFeatures()) > maxFeatures:
		return nil, fmt.Errorf("the guest announces %d features", len(opened.GetFeatures()))
	}
	features := make([]workspace.Feature, 0, len(opened.GetFeatures()))
	for _, f := range opened.GetFeatures() {
		if f == "" || len(f) > maxFeature || printable(f) != f {
			return nil, fmt.Errorf("the guest announces the feature %.80q", f)
		}
		features = append(features, workspace.Feature(f))
	}
	return features, nil
}

func checkDir(dir string) error {
	if len(dir) > maxPath || !path.IsAbs(dir) || path.Clean(dir) != dir || strings.ContainsRune(dir, 0) {
		return fmt.Errorf("the guest's working directory %.80q is not absolute and canonical", dir)
	}
	return nil
}

// printable makes a text fit for a terminal and a log.
func printable(s string) string {
	s = s[:min(len(s), maxVersion)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// withoutKind keeps the text of an error alone: what a guest sends wrongly is not
// the caller's mistake.
func withoutKind(err error) error { return errors.New(err.Error()) }
