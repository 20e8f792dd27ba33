package units

import (
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0":       0,
		"0s":      0,
		"-0":      0,
		"30s":     30 * time.Second,
		"1m30s":   90 * time.Second,
		"1.5h":    90 * time.Minute,
		"250ms":   250 * time.Millisecond,
		"7d":      7 * 24 * time.Hour,
		"1.5d":    36 * time.Hour,
		"1w2d":    9 * 24 * time.Hour,
		"1d12h":   36 * time.Hour,
		"106751d": 106751 * 24 * time.Hour,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
}

func TestParseDurationSaysWhatWouldBeRight(t *testing.T) {
	for in, want := range map[string]string{
		"":          "not a duration",
		"NaN":       "not a duration",
		"nan":       "not a duration",
		"Inf":       "not a duration",
		"-Inf":      "not a duration",
		"1e999":     "not a duration",
		"5":         "has no unit",
		"1.5":       "has no unit",
		"1e3":       "has no unit",
		"0x10":      "not a duration",
		"-5":        "negative",
		"-5s":       "negative",
		"-2d":       "negative",
		"-1ns":      "negative",
		"--5s":      "not a duration",
		"1d-5s":     "not a duration",
		"5 s":       "not a duration",
		"5y":        "not a duration",
		"s":         "not a duration",
		"12h1d":     "not a duration",
		"106752d":   "too long",
		"99999999w": "too long",
		"30s\x00":   "not a duration",
		"30s\xff":   "not a duration",
	} {
		got, err := ParseDuration(in)
		if err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDuration(%q): %q, want %q in it", in, err, want)
		}
		if want != "too long" && !strings.Contains(err.Error(), "30s") {
			t.Errorf("ParseDuration(%q): %q does not say what would be right", in, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "10": 10, "10B": 10, "64KiB": 64 << 10, "10MiB": 10 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40,
		"9223372036854775807": 1<<63 - 1,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "not a size", "-1": "not a size", "NaN": "not a size", "1.5MiB": "not a size", "10MB": "not a size",
		"10m": "not a size", "9223372036854775808": "too large", "9007199254740992KiB": "too large", "8388608TiB": "too large",
	} {
		if got, err := ParseSize(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q) = %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 3 << 20: "3.0 MiB", 1 << 30: "1.0 GiB", 5 << 40: "5.0 TiB", 5 << 50: "5120.0 TiB",
	} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
