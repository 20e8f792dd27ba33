package docker

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/execpath"
)

// documented reads the table of deviations in the provider's page.
func documented(t *testing.T) []sdk.Deviation {
	t.Helper()
	page, err := os.ReadFile("../../docs/providers/docker.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| rule | what is not kept |\n|---|---|\n")
	if !found {
		t.Fatal("the page has no table of deviations")
	}
	var all []sdk.Deviation
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 4 {
			break
		}
		plain := strings.NewReplacer("`", "").Replace
		all = append(all, sdk.Deviation{Rule: strings.TrimSpace(plain(cells[1])), Reason: strings.TrimSpace(plain(cells[2]))})
	}
	return all
}

// TestDeviationsAreTheDocumentedOnes holds what is declared to the two that are
// accepted, so that nobody adds one unseen.
func TestDeviationsAreTheDocumentedOnes(t *testing.T) {
	declared := execpath.Deviations()
	if got := documented(t); !slices.Equal(got, declared) {
		t.Errorf("the page says\n%q\nand the code\n%q", got, declared)
	}
	var rules []string
	for _, d := range declared {
		rules = append(rules, d.Rule)
	}
	// A descendant that has left all that it could be found by, and an image
	// without a shell.
	if want := []string{"C5_TimeoutStopsTheTree", "F9"}; !slices.Equal(rules, want) {
		t.Errorf("the rules that are not kept are %q, want %q", rules, want)
	}
}

func TestDeviationsAreDeclaredWhereThereMayBeNoGuest(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   []sdk.Deviation
	}{
		"guest as init":               {Config{Guest: guestInit}, nil},
		"guest where it runs":         {Config{}, nil},
		"no guest":                    {Config{Guest: guestOff}, execpath.Deviations()},
		"perhaps another's container": {Config{ContainerName: "theirs"}, execpath.Deviations()},
	} {
		checked, err := test.config.check()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := (&provider{config: checked}).Deviations(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
