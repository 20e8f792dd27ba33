package admin

import (
	"sync"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/digest"
)

// running knows the digests of the bytes that plugins run, which are not always
// those that stand at the path they were started from.
type running struct {
	mu      sync.Mutex
	digests map[int]*digest.Memory // by pid
}

func newRunning() *running { return &running{digests: make(map[int]*digest.Memory)} }

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
	r.mu.Lock()
	defer r.mu.Unlock()
	memory := r.digests[pid]
	if memory == nil {
		if len(r.digests) >= maxDigests {
			clear(r.digests)
		}
		memory = new(digest.Memory)
		r.digests[pid] = memory
	}
	return memory.Of(file)
}
