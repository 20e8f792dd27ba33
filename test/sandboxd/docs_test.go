//go:build sandboxd

package sandboxd_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugins/sandboxd"
)

// TestDeviationsAreDocumented: the documentation tells exactly what the provider
// declares.
func TestDeviationsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/providers/sandboxd.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "## What it does not keep\n")
	if !ok {
		t.Fatal("the page has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, declared []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]\S+) \|`).FindAllStringSubmatch(section, -1) {
		documented = append(documented, row[1])
	}
	for _, d := range sandboxd.Deviations() {
		declared = append(declared, d.Rule)
	}
	slices.Sort(documented)
	slices.Sort(declared)
	if !slices.Equal(documented, declared) {
		t.Errorf("the page tells %q, the provider %q", documented, declared)
	}
}
