package sandboxd

import (
	"encoding/base64"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestMarkEndsAStream: what follows the mark is not the command's, wherever the pieces
// are cut, and what only looks like it is.
func TestMarkEndsAStream(t *testing.T) {
	const mark = "\x1eberth-end-1"
	for text, want := range map[string]string{
		"":                              "",
		"abc":                           "abc",
		"abc" + mark + "of a child":     "abc",
		mark:                            "",
		"a\x1eb\x1eberth-end-" + "x":    "a\x1eb\x1eberth-end-x",
		"\x1e\x1eberth" + mark + mark:   "\x1e\x1eberth",
		"ends like it \x1eberth-end-":   "ends like it \x1eberth-end-",
		"\x1eberth-end-\x1eberth-end-1": "\x1eberth-end-",
	} {
		for size := 1; size <= len(text)+1; size++ {
			var mu sync.Mutex
			s := newStream("o", mark, sync.NewCond(&mu))
			mu.Lock()
			for at := 0; at < len(text); at += size {
				end := min(at+size, len(text))
				// Each piece comes again, as after an answer that was lost.
				for range 2 {
					if err := s.take(firstSegment, 0, []byte(text[:end])); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.end()
			mu.Unlock()
			if got, err := io.ReadAll(s); string(got) != want || err != nil {
				t.Errorf("%q in pieces of %d: %q, %v, want %q", text, size, got, err, want)
			}
		}
	}
}

func TestSegmentsFollowEachOther(t *testing.T) {
	var mu sync.Mutex
	s := newStream("o", "mark", sync.NewCond(&mu))
	mu.Lock()
	for _, piece := range []struct {
		segment int
		offset  int64
		data    string
		fails   bool
	}{
		{firstSegment, 0, "abc", false},
		{firstSegment, 2, "cd", false},     // what is known is passed over
		{firstSegment, 9, "x", true},       // a gap
		{firstSegment + 2, 0, "x", true},   // another one
		{firstSegment + 1, 0, "ef", false}, // the next one
		{firstSegment, 0, "abcd", false},   // the last one again
	} {
		if err := s.take(piece.segment, piece.offset, []byte(piece.data)); (err != nil) != piece.fails {
			t.Errorf("%+v: %v", piece, err)
		}
	}
	s.end()
	mu.Unlock()
	if got, _ := io.ReadAll(s); string(got) != "abcdef" {
		t.Errorf("it reads %q", got)
	}
}

// TestScriptsAnswersAreRead: one that broke off counts as far as it is complete.
func TestScriptsAnswersAreRead(t *testing.T) {
	f := facts{base64: true}
	encoded := base64.StdEncoding.EncodeToString([]byte("a\xff"))
	got, err := f.parse(head + "@e.100000\n" + encoded + "\n@o.100003+7\n" + encoded[:2] + "\n" + encoded[2:] + "\n!left 7 a b\n=3\n")
	if err != nil || got.word != "3" || len(got.parts) != 2 || got.left() != "a b (pid 7 in the container)" {
		t.Fatalf("%+v, %v", got, err)
	}
	if p := got.parts[1]; p.letter != "o" || p.segment != 100003 || p.offset != 7 || string(p.data) != "a\xff" {
		t.Errorf("%+v", p)
	}
	if got, err := f.parse(head + "@o.100000\n" + encoded + "\n@e.100000\nYQ"); err != nil || got.word != "" || len(got.parts) != 1 {
		t.Errorf("one that broke off: %+v, %v", got, err)
	}
	for _, text := range []string{"", "be", "=0\n", "@o.100000\n" + encoded + "\n=0\n", encoded + "\n=0\n"} {
		if got, err := f.parse(text); err != nil || got.word != "" || len(got.parts) > 0 {
			t.Errorf("one without its beginning, %q: %+v, %v", text, got, err)
		}
	}
	if got, err := (facts{}).parse(head + "@o.100000\n 61 ff\n 0a\n=0\n"); err != nil || string(got.parts[0].data) != "a\xff\n" {
		t.Errorf("od's: %+v, %v", got, err)
	}
	for _, text := range []string{"@o\n=0\n", "@x.100000\n=0\n", "@o.1\n=0\n", "@o.100000+x\n=0\n", "@o.100000\n!!!\n@\n", "@o.100000\n%%%%\n=0\n"} {
		if got, err := f.parse(head + text); !errors.Is(err, errScript) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("@o.100000\nYQ==\n=0\n", true)
	f.Add("@o.100000+3\n 61\n!left 1 x\n=on\n", false)
	f.Fuzz(func(t *testing.T, text string, asBase64 bool) {
		told, err := facts{base64: asBase64}.parse(head + text)
		var mu sync.Mutex
		p := &process{}
		p.change.L = &mu
		p.out, p.errs = newStream("o", "m", &p.change), newStream("e", "m", &p.change)
		if err == nil {
			_ = p.take(told)
		}
	})
}

// TestWordsReachACommand: any bytes do, as arguments and as variables, through the
// shells that are here.
func TestWordsReachACommand(t *testing.T) {
	args := []string{"plain", "", "a'b", "$(id)", "\n", "a\xff\n", "\xfe\x01%s\\n", "é", "-n", "x\xffy z"}
	vars := map[string]string{"A": "\xff\n", "B": "it's", "odd.name": "1\xff", "LC_ALL": "C", "IFS": "x", "PWD": "p", "n\xffame": "", "EMPTY": ""}
	const show = `for a; do printf '%s\0' "$a"; done; cat /proc/self/environ`
	shells := 0
	for _, shell := range [][]string{{"dash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		if _, err := exec.LookPath(shell[0]); err != nil {
			continue
		}
		shells++
		var script strings.Builder
		script.WriteString("_b_env() {\n")
		visible := words(&script, append([]string{"sh", "-c", show, "sh"}, args...))
		variables(&script, vars)
		script.WriteString("}\n_b_env \"$@\"\n")
		argv, env := scripted(script.String()+strings.Repeat("#", 2*maxVariable), visible)
		cmd := exec.Command(shell[0], append(slices.Clone(shell[1:]), argv[1:]...)...)
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		for name, value := range env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", shell, err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if len(got) < len(args) || !slices.Equal(got[:len(args)], args) {
			t.Errorf("%v: the arguments are %q", shell, got)
			continue
		}
		for name, value := range vars {
			// The shell that shows them may set this one anew.
			if name != "PWD" && !slices.Contains(got[len(args):], name+"="+value) && exportable.MatchString(name) && name != "IFS" {
				t.Errorf("%v: of the variables %q, %q=%q is missing", shell, got[len(args):], name, value)
			}
		}
		for _, variable := range got[len(args):] {
			if strings.HasPrefix(variable, scriptVariable) || strings.HasPrefix(variable, "OLDPWD") {
				t.Errorf("%v: the command sees %.40q", shell, variable)
			}
		}
	}
	if shells == 0 {
		t.Fatal("there is no shell to try")
	}
}
