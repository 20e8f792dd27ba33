package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sync"

	"github.com/berth-dev/berth/host"
)

// running knows the digests of the bytes that plugins run, which are not always
// those that stand at the path they were started from.
type running struct {
	mu      sync.Mutex
	digests map[int]runningDigest // by pid
}

type runningDigest struct {
	info os.FileInfo // of the file that was read
	sum  string
}

func newRunning() *running { return &running{digests: make(map[int]runningDigest)} }

// maxDigests is more than the plugins that run at a time: with more, those of
// processes that are gone are forgotten with the others.
const maxDigests = 256

// identify fills in the digest of the process that runs, where the system tells
// what it executes.
func (r *running) identify(st host.ProviderStatus) host.ProviderStatus {
	if st.PID == 0 {
		return st
	}
	if sum, err := r.digest(st.PID); err == nil {
		st.Digest = sum
	}
	return st
}

func (r *running) digest(pid int) (string, error) {
	file, err := openExecuted(pid)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.digests[pid]; ok && os.SameFile(known.info, info) && known.info.Size() == info.Size() && known.info.ModTime().Equal(info.ModTime()) {
		return known.sum, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	if len(r.digests) >= maxDigests {
		clear(r.digests)
	}
	sum := "sha256:" + hex.EncodeToString(hash.Sum(nil))
	r.digests[pid] = runningDigest{info, sum}
	return sum, nil
}
