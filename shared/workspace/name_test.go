package workspace_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestValidateName(t *testing.T) {
	for _, name := range []string{"a", "0", "docker", "conv-42", "a--b", "1-2", strings.Repeat("x", 63), "berth-3f62a91c0d5e4b78", "berth"} {
		if err := workspace.ValidateName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "-", "-a", "a-", "A", "aB", "a_b", "a.b", "a b", "a/b", "a\n", "\na", "a\x00", "ä", "a\xff", "٣", strings.Repeat("x", 64), strings.Repeat("x", 1<<20),
	} {
		checkInvalid(t, name, workspace.ValidateName(name), "name ")
		checkInvalid(t, name, workspace.ValidateWorkspaceName(name), "name ")
	}
}

func TestTokens(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := workspace.NewToken()
		if !workspace.IsToken(token) {
			t.Fatalf("NewToken gave %q", token)
		}
		if seen[token] {
			t.Fatalf("NewToken gave %q twice", token)
		}
		seen[token] = true
		// A token is a name and an id as it stands, but no name to ask for.
		if err := workspace.ValidateName(token); err != nil {
			t.Fatal(err)
		}
		if id, err := workspace.EncodeID(token); err != nil || id != token {
			t.Fatalf("as an id: %q, %v", id, err)
		}
		checkInvalid(t, token, workspace.ValidateWorkspaceName(token), "form of a token")
	}
	for _, s := range []string{
		"", "berth-", "berth-3f62a91c0d5e4b7", "berth-3f62a91c0d5e4b789", "berth-3F62A91C0D5E4B78", "berth-3f62a91c0d5e4b7g",
		"Berth-3f62a91c0d5e4b78", "berth_3f62a91c0d5e4b78", "xberth-3f62a91c0d5e4b78", "berth-3f62a91c0d5e4b78\n", " berth-3f62a91c0d5e4b78",
	} {
		if workspace.IsToken(s) {
			t.Errorf("IsToken(%q)", s)
		}
	}
	if err := workspace.ValidateWorkspaceName("berth-3f62a91c0d5e4b7"); err != nil {
		t.Errorf("a name that is almost a token: %v", err)
	}
}

func TestValidateLabels(t *testing.T) {
	for _, tt := range []struct {
		key, value string
		why        string
	}{
		{"team", "agents", ""},
		{"team", "", ""},
		{"A", "Z", ""},
		{"a.b_c-d", "1.2_3-4", ""},
		{strings.Repeat("k", 63), strings.Repeat("v", 63), ""},
		{"example.com/team", "x", ""},
		{"a-1.b-2.c/Team", "x", ""},
		{strings.Repeat(strings.Repeat("d", 62)+".", 4) + "x/k", "x", ""}, // 253
		{"dev.berth", "x", ""},
		{"dev.berthx/y", "x", ""},
		{"x.dev.berth.y", "x", ""},

		{"", "x", "a key is"},
		{"-a", "x", "a key is"},
		{"a-", "x", "a key is"},
		{".a", "x", "a key is"},
		{"a b", "x", "a key is"},
		{"a\n", "x", "a key is"},
		{"ä", "x", "a key is"},
		{"a\xff", "x", "a key is"},
		{strings.Repeat("k", 64), "x", "a key is"},
		{"a/b/c", "x", "a key is"},
		{"a/", "x", "a key is"},
		{"/a", "x", "DNS name"},
		{"A.com/a", "x", "DNS name"},
		{"a..b/a", "x", "DNS name"},
		{"a_b/a", "x", "DNS name"},
		{"a.b./a", "x", "DNS name"},
		{strings.Repeat(strings.Repeat("d", 62)+".", 4) + "xy/k", "x", "DNS name"}, // 254
		{"k", "-x", "value"},
		{"k", "x-", "value"},
		{"k", "x y", "value"},
		{"k", "x/y", "value"},
		{"k", "x\x00", "value"},
		{"k", "\xff", "value"},
		{"k", strings.Repeat("v", 64), "value"},
		{workspace.LabelManaged, "true", "reserved"},
		{workspace.LabelProvider, "docker", "reserved"},
		{"dev.berth.", "x", "reserved"},
		{"dev.berth.x/y", "x", "reserved"},
	} {
		err := workspace.ValidateLabels(map[string]string{"fine": "yes", tt.key: tt.value})
		if tt.why == "" {
			if err != nil {
				t.Errorf("%q=%q: %v", tt.key, tt.value, err)
			}
			continue
		}
		checkInvalid(t, tt.key+"="+tt.value, err, tt.why)
	}
	if err := workspace.ValidateLabels(nil); err != nil {
		t.Errorf("no labels: %v", err)
	}
}

// Of several bad labels it is always the same one that is told.
func TestValidateLabelsIsDeterministic(t *testing.T) {
	labels := map[string]string{}
	for i := range 20 {
		labels[fmt.Sprintf("k%02d", i)] = "-"
	}
	for range 50 {
		checkInvalid(t, "labels", workspace.ValidateLabels(labels), `label "k00"`)
	}
}
