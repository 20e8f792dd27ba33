//go:build gateway

package gateway_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadme runs the README's program for other languages as it stands, but for the
// address and the token.
func TestReadme(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begins := strings.Cut(string(data), "```python\n")
	program, _, ends := strings.Cut(rest, "```")
	if !begins || !ends {
		t.Fatal("README.md has no program in Python")
	}
	s := serve(t, setup{providers: map[string]any{"local": map[string]any{}}})
	for _, as := range [][2]string{{"http://127.0.0.1:8787", s.url}, {"choose-one", s.token}} {
		if strings.Count(program, as[0]) != 1 {
			t.Fatalf("README.md: the program in Python does not have %q once", as[0])
		}
		program = strings.Replace(program, as[0], as[1], 1)
	}
	out, err := pythonCommand(t, s, "-c", program).CombinedOutput()
	if err != nil || string(out) != "from another language\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
