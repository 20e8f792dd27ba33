package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/berth-dev/berth/shared/wire/guestv1"
)

// The protocols that this guest speaks, from and to.
const (
	ProtocolMin = 1
	ProtocolMax = 1
)

// hello answers the first call of every connection.
type hello struct {
	guestv1.UnimplementedGuestServer

	answer guestv1.HelloResponse
	digest func() ([]byte, error)
	done   sync.WaitGroup
}

func newHello(version, workingDir string) (*hello, error) {
	bootID := make([]byte, 16)
	if _, err := rand.Read(bootID); err != nil {
		return nil, fmt.Errorf("choosing a boot id: %w", err)
	}
	h := &hello{digest: sync.OnceValues(Digest)}
	h.answer.ProtocolMin, h.answer.ProtocolMax = ProtocolMin, ProtocolMax
	h.answer.Version = version
	h.answer.BootId = bootID
	h.answer.WorkingDir = []byte(workingDir)
	h.answer.Uid, h.answer.Gid = uint32(os.Getuid()), uint32(os.Getgid()) //nolint:gosec // ids are of 32 bits
	h.answer.WorkspaceId = WorkspaceID
	// Beside the start, which it would double.
	h.done.Go(func() { _, _ = h.digest() })
	return h, nil
}

// wait waits for what newHello has begun.
func (h *hello) wait() { h.done.Wait() }

// Hello tells what the guest is.
func (h *hello) Hello(context.Context, *guestv1.HelloRequest) (*guestv1.HelloResponse, error) {
	digest, err := h.digest()
	if err != nil {
		return nil, err
	}
	return &guestv1.HelloResponse{
		ProtocolMin: h.answer.GetProtocolMin(), ProtocolMax: h.answer.GetProtocolMax(),
		Version: h.answer.GetVersion(), Digest: digest, BootId: h.answer.GetBootId(),
		WorkingDir: h.answer.GetWorkingDir(), Uid: h.answer.GetUid(), Gid: h.answer.GetGid(),
		WorkspaceId: h.answer.GetWorkspaceId(),
	}, nil
}

// Digest is the SHA-256 of the binary that this process runs, whatever has become
// of its file.
func Digest() ([]byte, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("reading the guest's own binary: %w", err)
	}
	defer self.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, self); err != nil {
		return nil, fmt.Errorf("reading the guest's own binary: %w", err)
	}
	return hash.Sum(nil), nil
}
