package figures

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFillReplacesFigures(t *testing.T) {
	const name = "speed"
	begin, end := Begin(name), End
	doc := filepath.Join(t.TempDir(), "doc.md")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(doc, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("before\n" + begin + "\nold\n" + end + "\nafter\n")
	for range 2 { // what it wrote it finds again
		if err := Fill(doc, name, "\n| new |\n\n"); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(doc)
	if want := "before\n" + begin + "\n\n| new |\n\n" + end + "\nafter\n"; err != nil || string(data) != want {
		t.Errorf("%q, want %q (error %v)", data, want, err)
	}
	for _, text := range []string{"", begin + "\n", end + "\n"} {
		put(text)
		if err := Fill(doc, name, "new"); err == nil || !strings.Contains(err.Error(), begin) {
			t.Errorf("fill %q: %v", text, err)
		}
		if data, _ := os.ReadFile(doc); string(data) != text {
			t.Errorf("%q was changed to %q", text, data)
		}
	}
}
