//go:build unix

package execpath

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// testShells are those of this machine.
func testShells(t *testing.T) [][]string {
	t.Helper()
	shells := [][]string{{"/bin/sh"}}
	for _, shell := range [][]string{{"bash", "--posix"}, {"busybox", "sh"}} {
		if path, err := exec.LookPath(shell[0]); err == nil {
			shells = append(shells, append([]string{path}, shell[1:]...))
		}
	}
	return shells
}

func TestQuotedWordsArriveExactly(t *testing.T) {
	var every strings.Builder
	for c := 1; c < 256; c++ {
		every.WriteByte(byte(c))
	}
	words := []string{
		"", "a", "-n", "--", "'", `\`, `\n`, "a'b'c", "a\n", "\n", "\n\n", "\na\n\n", "%s%d", "100%", "$(id)", "`id`", "$HOME", "é", "\xff", "\x81\x82\x88",
		every.String(), every.String() + "\n", "-\x01", "*", "~", "a b  c", strings.Repeat("x\xff\n", 1000),
	}
	line := setNewline + "set --" + quoteAll(words) + "\n"
	if i := strings.IndexFunc(line[:len(line)-1], func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		t.Fatalf("byte %d of the line is %q", i, line[i])
	}
	for _, shell := range testShells(t) {
		t.Run(shell[0], func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:], "-c", `IFS= read -r l; eval "$l"; printf '%s\0' "$@"`)...)
			cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
			cmd.Stdin = strings.NewReader(line)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			if !slices.Equal(got, words) {
				t.Errorf("got %.400q, want %.400q", got, words)
			}
		})
	}
}

// TestEnvironmentIsExact runs the wrapper's own way to a command's environment.
func TestEnvironmentIsExact(t *testing.T) {
	base := map[string]string{"PATH": "/usr/bin:/bin", "KEPT": "as it is", "OVER": "base", "dotted.name": "base", "_b": "x"}
	added := map[string]string{
		"OVER": "new", "NEWLINE": "a\nb\n", "BYTES": "\xff\x81'\"$x", "EMPTY": "", "odd name": "x", "LC_ALL": "nowhere", "IFS": "x", "OPTIND": "y",
		"UID": "5", "PPID": "7", "RANDOM": "8", "a\xff": "b", "PS4": "z", "SHLVL": "9", "TERM": "dumb",
	}
	want := map[string]string{}
	for _, m := range []map[string]string{base, added} {
		for name, value := range m {
			want[name] = value
		}
	}
	env := newEnvironment(base, added)
	for _, shell := range testShells(t) {
		t.Run(shell[0], func(t *testing.T) {
			script := setNewline + "cd /; environ() { " + env.script + " }; (environ; exec" + quoteAll(append(slices.Clone(env.prefix), "cat", "/proc/self/environ")) + ")"
			cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:], "-c", script)...)
			for name, value := range base {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := parseEnviron(out)
			delete(got, "_") // bash's own
			for name, value := range want {
				if v, ok := got[name]; !ok || v != value {
					t.Errorf("%q is %q (set: %v), want %q", name, v, ok, value)
				}
			}
			for name := range got {
				if _, ok := want[name]; !ok {
					t.Errorf("%q is set by the shell", name)
				}
			}
		})
	}
	for _, word := range env.prefix {
		if strings.Contains(word, "KEPT") || strings.Contains(word, "OVER") || strings.Contains(word, "BYTES") {
			t.Errorf("%q is in the arguments of env, where a list of processes shows it", word)
		}
	}
}
