package host

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	vars := lookup(map[string]string{"A": "1", "EMPTY": "", "NESTED": "${A}"})
	for text, want := range map[string]string{
		"":                 "",
		"plain $HOME 5$":   "plain $HOME 5$",
		"${A}":             "1",
		"x${A}y${A}":       "x1y1",
		"${NESTED}":        "${A}",
		"$${A}":            "${A}",
		"$$${A}":           "$${A}",
		"${A:-x}":          "1",
		"${NONE:-x}":       "x",
		"${NONE:-}":        "",
		"${EMPTY}":         "",
		"${EMPTY:-x}":      "x",
		"${NONE:-a:-b}":    "a:-b",
		"${NONE:-${}":      "${",
		"\xff${A}\xfe":     "\xff1\xfe",
		"${A}$${A}${A}$${": "1${A}1${",
	} {
		if got, err := expand(text, vars); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"${NONE}": "NONE is not set", "${A": "without its }", "${}": "variable's name", "${A-x}": "variable's name", "${1A}": "variable's name", "${A }": "variable's name",
	} {
		if got, err := expand(text, vars); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}
