// Package events keeps what happened to a provider's plugin, the newest of it, so
// that an operator can be told why it is as it is. [New] makes a [Ring].
package events

import (
	"sync"
	"time"
)

// Kinds of events.
const (
	Start       = "start"        // a start began
	Started     = "started"      // it serves
	StartFailed = "start-failed" // it did not come to that
	Died        = "died"         // it ended by itself
	Killed      = "killed"       // the host ended it for a reason of its own
	Swap        = "swap"         // a start began beside the one that serves
	Swapped     = "swapped"      // the new one serves, the old one is leaving
	SwapRefused = "swap-refused" // the old one serves on
	Restored    = "restored"     // what was refused is gone, and what serves is found again
	Drained     = "drained"      // one that was leaving had no calls any more, and ended
	DrainCut    = "drain-cut"    // one that was leaving had no time left
	IdleStop    = "idle-stop"    // nobody used it
	// Unresponsive is a health check that was missed, Responsive the next one that
	// was not.
	Unresponsive = "unresponsive"
	Responsive   = "responsive"
	Closed       = "closed" // the host was shut down
	Level        = "level"  // its log level was set
)

// Kept is how many events a ring keeps: what a plugin that crashes and is started
// again leaves in some ten rounds, and little memory.
const Kept = 64

// maxText bounds one event: an error may hold a plugin's last lines.
const maxText = 4 << 10

// Event is one thing that happened.
type Event struct {
	Time time.Time
	Kind string
	Text string
}

// Ring keeps the newest events of one provider. Its methods may be called
// concurrently, and never wait for long.
type Ring struct {
	mu   sync.Mutex
	kept []Event // of which next is the oldest once it is full
	next int
	seen map[string]int64 // by kind, all that ever were
}

// New makes a ring.
func New() *Ring { return &Ring{seen: make(map[string]int64)} }

// Add notes something that happens now.
func (r *Ring) Add(kind, text string) {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[kind]++
	e := Event{Time: time.Now(), Kind: kind, Text: text}
	if len(r.kept) < Kept {
		r.kept = append(r.kept, e)
		return
	}
	r.kept[r.next] = e
	r.next = (r.next + 1) % Kept
}

// Seen is how many events of a kind there ever were.
func (r *Ring) Seen(kind string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[kind]
}

// List is what is kept, the newest last.
func (r *Ring) List() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Event, 0, len(r.kept))
	list = append(list, r.kept[r.next:]...)
	return append(list, r.kept[:r.next]...)
}
