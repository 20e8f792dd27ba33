package catalog

import (
	"fmt"
	"io/fs"
	"strings"
)

// NotFoundError is a plugin of which no executable binary was found. It wraps
// [fs.ErrNotExist], or [fs.ErrPermission] if a file of that name was there.
type NotFoundError struct {
	// Plugin is the name that was looked for.
	Plugin string
	// Dirs are where it was looked for, in order.
	Dirs []string
	// Refused tells which files of the right name were passed over, and why.
	Refused []error
	// Near are the names of plugins that are there and written alike.
	Near []string
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plugin %s: no executable %s", e.Plugin, fileName(e.Plugin))
	if len(e.Dirs) == 0 {
		b.WriteString(": there is no folder to look in")
	} else {
		fmt.Fprintf(&b, " in %s", strings.Join(e.Dirs, ", "))
	}
	for _, err := range e.Refused {
		fmt.Fprintf(&b, "; %v", err)
	}
	if len(e.Near) > 0 {
		fmt.Fprintf(&b, "; did you mean %s?", strings.Join(e.Near, " or "))
	}
	return b.String()
}

// Unwrap makes [errors.Is] find what kind of failure it is.
func (e *NotFoundError) Unwrap() error {
	if len(e.Refused) > 0 {
		return fs.ErrPermission
	}
	return fs.ErrNotExist
}

// maxNear is how many changed letters still make a name look like another.
const maxNear = 2

// near returns the plugins whose names are written almost like name.
func near(name string, list []Binary) []string {
	var names []string
	for _, bin := range list {
		if d := distance(name, bin.Name); d <= maxNear && d < len(name) || strings.HasPrefix(bin.Name, name) || strings.HasPrefix(name, bin.Name) {
			names = append(names, bin.Name)
		}
	}
	return names
}

// distance is Levenshtein's: how many letters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}
