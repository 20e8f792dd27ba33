// Package units reads durations and sizes as people type them on a command
// line, and says what would be right when they are wrong.
package units

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const durationHint = "want such as 30s, 1m30s, 2h or 7d; 0 means none"

// Days and weeks are what time.ParseDuration lacks. They come first, as in
// 1w2d or 7d12h.
var longUnit = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(w|d)`)

var unitLength = map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}

// ParseDuration reads what [time.ParseDuration] reads, and days (d) and weeks
// (w) before it. A bare 0 is zero; any other number without a unit, a negative
// duration, and what is not a number are refused.
func ParseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		switch {
		case f == 0:
			return 0, nil
		case f < 0:
			return 0, negative(s)
		}
		return 0, fmt.Errorf("%q has no unit: %s", s, durationHint)
	}
	rest, isNegative := strings.CutPrefix(s, "-")
	total := 0.0
	parsed := false
	for {
		m := longUnit.FindStringSubmatch(rest)
		if m == nil {
			break
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, notDuration(s)
		}
		total += n * float64(unitLength[m[2]])
		rest = rest[len(m[0]):]
		parsed = true
	}
	var short time.Duration
	if rest != "" || !parsed {
		var err error
		if short, err = time.ParseDuration(rest); err != nil || short < 0 {
			return 0, notDuration(s)
		}
	}
	switch {
	case total+float64(short) >= math.MaxInt64:
		return 0, fmt.Errorf("%q is too long: at most %d days can be expressed", s, int64(math.MaxInt64/(24*time.Hour)))
	case isNegative && (total > 0 || short > 0):
		return 0, negative(s)
	}
	return time.Duration(total) + short, nil
}

func negative(s string) error {
	return fmt.Errorf("%q is negative: %s", s, durationHint)
}

func notDuration(s string) error {
	return fmt.Errorf("%q is not a duration: %s", s, durationHint)
}

var (
	size       = regexp.MustCompile(`^([0-9]+)(B|KiB|MiB|GiB|TiB)?$`)
	sizeLength = map[string]int64{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
)

// FormatSize writes a number of bytes for people, in the largest unit that leaves
// a whole one.
func FormatSize(n int64) string {
	const step = 1 << 10
	value, unit := float64(n), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < step {
			break
		}
		value, unit = value/step, larger
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// ParseSize reads a number of bytes, or of KiB, MiB, GiB or TiB.
func ParseSize(s string) (int64, error) {
	m := size.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size: want bytes, or such as 64KiB, 10MiB or 2GiB; 0 means none", s)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > math.MaxInt64/sizeLength[m[2]] {
		return 0, fmt.Errorf("%q is too large: at most %d bytes can be expressed", s, int64(math.MaxInt64))
	}
	return n * sizeLength[m[2]], nil
}
