package environ

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func own(name string) (string, bool) {
	if name == "OWN" {
		return "mine", true
	}
	return "", false
}

func TestAdd(t *testing.T) {
	for in, want := range map[string][2]string{
		"A=1":              {"A", "1"},
		"A=":               {"A", ""},
		"A=b=c":            {"A", "b=c"},
		"OWN":              {"OWN", "mine"},
		"OWN=":             {"OWN", ""},
		"RAW=\xff\xfe":     {"RAW", "\xff\xfe"},
		"N\xff=x":          {"N\xff", "x"},
		"with.dots-here=1": {"with.dots-here", "1"},
	} {
		env := map[string]string{}
		if err := Add(env, in, own); err != nil || env[want[0]] != want[1] || len(env) != 1 {
			t.Errorf("Add(%q) made %q, %v", in, env, err)
		}
	}
	for in, want := range map[string]string{
		"":             "without a name",
		"=secret":      "without a name",
		"GONE":         "write GONE=VALUE",
		"A=sec\x00ret": "NUL",
		"A\x00=x":      "NUL",
	} {
		env := map[string]string{}
		err := Add(env, in, own)
		if err == nil || !strings.Contains(err.Error(), want) || len(env) != 0 {
			t.Errorf("Add(%q) made %q, %v, want an error with %q", in, env, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "sec") {
			t.Errorf("Add(%q): %q repeats the value", in, err)
		}
	}
}

func TestAddFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	big := strings.Repeat("x", 5<<20)
	content := "\xef\xbb\xbf# a comment\n\nA=1\r\nB= \"quoted\" # no comment \n   \nOWN\nRAW=\xff\xfe\nBIG=" + big + "\nA=2"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	if err := AddFile(env, file, own); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "2", "B": ` "quoted" # no comment `, "OWN": "mine", "RAW": "\xff\xfe", "BIG": big}
	if !maps.Equal(env, want) {
		delete(env, "BIG")
		t.Errorf("got %q", env)
	}
}

func TestAddFileNamesTheLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("A=1\n=secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := AddFile(map[string]string{}, file, own)
	if err == nil || !strings.Contains(err.Error(), file+":2: ") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want the file and line and no value", err)
	}
	if err := AddFile(map[string]string{}, file+".gone", own); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}
