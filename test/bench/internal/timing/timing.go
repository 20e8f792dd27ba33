// Package timing keeps how long something took.
package timing

import (
	"fmt"
	"time"
)

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

// Text is a duration so rounded, with a space before its unit.
func Text(d time.Duration) string {
	d = Rounded(d)
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	}
}
