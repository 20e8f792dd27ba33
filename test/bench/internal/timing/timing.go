// Package timing keeps how long something took.
package timing

import "time"

// Samples are sorted durations of one piece of work, done again and again.
type Samples []time.Duration

// At is the duration within which so many of a hundred were done.
func (s Samples) At(percent int) time.Duration { return s[(len(s)-1)*percent/100] }

// Rounded is a duration with what can be compared of it.
func Rounded(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}
