package display

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"a.txt":         "a.txt",
		"with space":    "with space",
		"über 日本 🚢":     "über 日本 🚢",
		"-rf":           "-rf",
		"it's":          "it's",
		`mid"dle`:       `mid"dle`,
		"\ufffd":        "\ufffd",
		"":              `""`,
		" lead":         `" lead"`,
		"trail ":        `"trail "`,
		`"quoted"`:      `"\"quoted\""`,
		"new\nline":     `"new\nline"`,
		"tab\t":         `"tab\t"`,
		"\x1b[31mred":   `"\x1b[31mred"`,
		"a\xff":         `"a\xff"`,
		"\u202egpj.exe": `"\u202egpj.exe"`,
		"c1\u009b31m":   `"c1\u009b31m"`,
	} {
		if got := Name(in); got != want {
			t.Errorf("Name(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                "plain",
		"it's \"so\"":          "it's \"so\"",
		"one\nberth: two":      "one\n  berth: two",
		"a\tb":                 "a\tb",
		"\x1b]0;title\a":       `\x1b]0;title\a`,
		"bad \xff\xfe, \ufffd": "bad \\xff\\xfe, \ufffd",
		"over\rwritten":        `over\rwritten`,
		"nul\x00":              `nul\x00`,
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

// What a terminal gets holds no control characters but newlines and tabs, and
// nothing that is not UTF-8, whatever it was made from.
func FuzzTerminalSafety(f *testing.F) {
	f.Add("a\x1b[2J\xff\u009b\u202e\r\n\t\x00")
	f.Fuzz(func(t *testing.T, s string) {
		var log bytes.Buffer
		if n, err := (Writer{&log}).Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		for what, got := range map[string]string{"Name": Name(s), "Text": Text(s), "Writer": log.String()} {
			if !utf8.ValidString(got) {
				t.Errorf("%s(%q) = %q is not UTF-8", what, s, got)
			}
			for _, r := range got {
				if !unicode.IsPrint(r) && (what == "Name" || r != '\n' && r != '\t') {
					t.Errorf("%s(%q) = %q holds %U", what, s, got, r)
				}
			}
		}
	})
}

func TestListJSONIsExact(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	names := []string{"plain<&>", "a\xff", "new\nline", "\x1b[0m"}
	var rows []Row
	for _, name := range names {
		rows = append(rows, FileRow(name, workspace.FileInfo{Name: name, Size: 3, Mode: 0o640, ModTime: when, Link: true, Target: "to\xfe"}))
	}
	var out bytes.Buffer
	if err := List(&out, JSON, nil, rows); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), "<&>") {
		t.Errorf("raw control bytes, or escaped plain ones, in %s", out.String())
	}
	var files []File
	if err := json.Unmarshal(out.Bytes(), &files); err != nil || len(files) != len(names) {
		t.Fatalf("%v in %s", err, out.String())
	}
	for i, file := range files {
		got := file.Name
		if file.NameB64 != nil {
			got = string(file.NameB64)
		}
		if got != names[i] || utf8.ValidString(names[i]) != (file.NameB64 == nil) {
			t.Errorf("%q came back as %q and %q", names[i], file.Name, file.NameB64)
		}
		if string(file.TargetB64) != "to\xfe" || *file.Target != "to\ufffd" || file.Mode != "0640" || !file.ModTime.Equal(when) {
			t.Errorf("%+v", file)
		}
	}
}

func TestListEmpty(t *testing.T) {
	for format, want := range map[Format]string{JSON: "[]\n", Names: "", Table: "A  B\n"} {
		var out bytes.Buffer
		if err := List(&out, format, []string{"A", "B"}, nil); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v, want %q", format, out.String(), err, want)
		}
	}
}

func TestListTable(t *testing.T) {
	rows := []Row{
		FileRow("a", workspace.FileInfo{Size: 5, Mode: 0o644}),
		FileRow("sub", workspace.FileInfo{Size: 4096, Mode: fs.ModeDir | 0o750}),
		FileRow("to", workspace.FileInfo{Mode: fs.ModeDir | 0o755, Link: true, Target: "su\nb"}),
	}
	var out bytes.Buffer
	if err := List(&out, Table, FileHeading, rows); err != nil {
		t.Fatal(err)
	}
	want := `MODE        SIZE  MODIFIED  NAME
-rw-r--r--  5     -         a
drwxr-x---  4096  -         sub
lrwxr-xr-x  0     -         to -> "su\nb"
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, fs.ErrClosed }

func TestListReportsWriteErrors(t *testing.T) {
	for _, format := range []Format{JSON, Names, Table} {
		if err := List(brokenWriter{}, format, []string{"A"}, []Row{{Name: "x", Cells: []string{"x"}, Object: 1}}); err == nil {
			t.Errorf("%s: a failed write is not reported", format)
		}
	}
}

func TestPermissions(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		0o644: "0644", 0: "0000", fs.ModeDir | fs.ModeSticky | 0o777: "1777", fs.ModeSetuid | 0o755: "4755",
	} {
		if got := Permissions(mode); got != want {
			t.Errorf("Permissions(%v) = %s, want %s", mode, got, want)
		}
	}
}
