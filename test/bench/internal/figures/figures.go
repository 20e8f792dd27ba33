// Package figures puts what was measured into a document.
package figures

import (
	"fmt"
	"os"
	"strings"
)

// End is the line of a document after figures.
const End = "<!-- end of figures -->"

// Begin is the line before figures of that name.
func Begin(name string) string { return "<!-- figures: " + name + " -->" }

// Fill replaces the figures of that name in the document at path.
func Fill(path, name, text string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin := Begin(name)
	before, rest, found := strings.Cut(string(data), begin+"\n")
	_, after, ended := strings.Cut(rest, End+"\n")
	if !found || !ended {
		return fmt.Errorf("%s has no lines %s and %s", path, begin, End)
	}
	return os.WriteFile(path, []byte(before+begin+"\n\n"+strings.TrimSpace(text)+"\n\n"+End+"\n"+after), 0o644)
}
