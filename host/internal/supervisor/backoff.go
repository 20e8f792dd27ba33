package supervisor

import "time"

const (
	// DefaultLivenessInterval makes three failed checks last 15 s, after which no
	// loaded machine is the reason any more.
	DefaultLivenessInterval = 5 * time.Second
	// DefaultBackoffMax keeps a plugin that dies at once from using a processor
	// up, while a caller still gets its answer within a few seconds.
	DefaultBackoffMax = 3 * time.Second
	// DefaultHealthyAfter is longer than what a fault at start or in the first
	// calls takes to show.
	DefaultHealthyAfter = 30 * time.Second
	// backoffFirst is the wait after a second death. The first one is no
	// pattern, and is not waited for.
	backoffFirst = 100 * time.Millisecond
)

// backoff tells how long to wait before the next start.
type backoff struct {
	max, healthyAfter time.Duration

	deaths int // in a row
	until  time.Time
}

// died counts a plugin that ended at now by itself, or did not start.
func (b *backoff) died(now time.Time, lived time.Duration) {
	if lived >= b.healthyAfter {
		b.deaths = 0
	}
	b.deaths++
	b.until = now.Add(b.delay())
}

func (b *backoff) delay() time.Duration {
	if b.max <= 0 || b.deaths < 2 {
		return 0
	}
	delay := backoffFirst
	for range b.deaths - 2 {
		if delay *= 2; delay >= b.max {
			break
		}
	}
	return min(delay, b.max)
}

func (b *backoff) wait(now time.Time) time.Duration { return max(0, b.until.Sub(now)) }
