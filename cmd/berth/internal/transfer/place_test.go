package transfer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestParsePlace(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("Odd:name", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ref := workspace.Ref{Provider: "local", ID: "berth-1"}
	for in, want := range map[string]Place{
		"-":                   {Stream: true},
		"./-":                 {Path: "./-"},
		"a.txt":               {Path: "a.txt"},
		"local/berth-1":       {Path: "local/berth-1"},
		"./local/berth-1:a":   {Path: "./local/berth-1:a"},
		"../x:y":              {Path: "../x:y"},
		"/tmp/x:y":            {Path: "/tmp/x:y"},
		"Odd:name":            {Path: "Odd:name"},
		"local/berth-1:":      {Ref: ref, Path: "."},
		"local/berth-1:a":     {Ref: ref, Path: "a"},
		"local/berth-1:/a":    {Ref: ref, Path: "/a"},
		"local/berth-1:a:b":   {Ref: ref, Path: "a:b"},
		"local/berth-1:-":     {Ref: ref, Path: "-"},
		"local/berth-1:a\xff": {Ref: ref, Path: "a\xff"},
	} {
		if got, err := ParsePlace(in); err != nil || got != want {
			t.Errorf("ParsePlace(%q) = %+v, %v, want %+v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"":                  "an empty path",
		"Local/berth-1:a":   "provider: name",
		"local/berth%41:a":  "must be written A",
		"local/:a":          "id is empty",
		"plain:a":           "want provider/id",
		"missing/sub dir:x": "./NAME",
	} {
		if got, err := ParsePlace(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePlace(%q) = %+v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func TestSplit(t *testing.T) {
	for in, want := range map[string][2]string{
		"a":        {".", "a"},
		"a/":       {".", "a"},
		"a/b":      {"a", "b"},
		"a//b///":  {"a", "b"},
		"/a":       {"/", "a"},
		"//a":      {"/", "a"},
		"/":        {"/", "/"},
		"///":      {"/", "/"},
		"a/../b":   {"a/..", "b"},
		"a/..":     {"a", ".."},
		".":        {".", "."},
		"-rf":      {".", "-rf"},
		"a\xff/\n": {"a\xff", "\n"},
	} {
		folder, name := (&remoteSide{}).split(in)
		if folder != want[0] || name != want[1] {
			t.Errorf("split(%q) = %q, %q, want %q", in, folder, name, want)
		}
	}
	if folder, name := (localSide{}).split(filepath.FromSlash("a/b/../c/")); folder != "a" || name != "c" {
		t.Errorf("split = %q, %q", folder, name)
	}
}
