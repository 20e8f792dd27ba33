package execpath

import (
	"fmt"
	"strings"
)

// quote writes s as one word of a POSIX shell, in printable ASCII and on one line:
// that is what reaches a shell unchanged by the engine's JSON and by read. The shell
// must have _b_n set to a newline.
func quote(s string) string {
	body := strings.TrimRight(s, "\n")
	newlines := strings.Repeat(`"$_b_n"`, len(s)-len(body)) // a substitution drops them
	switch {
	case body == "" && newlines != "":
		return newlines
	case isPlain(body):
		return "'" + strings.ReplaceAll(body, "'", `'\''`) + "'" + newlines
	}
	var b strings.Builder
	b.WriteString(`"$(printf '`)
	for i := range len(body) {
		switch c := body[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(" ./_-:=,", c) >= 0:
			if i == 0 && c == '-' { // no option
				b.WriteString(`\055`)
				continue
			}
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	b.WriteString(`')"`)
	return b.String() + newlines
}

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// quoteAll writes words for `set --`.
func quoteAll(words []string) string {
	var b strings.Builder
	for _, word := range words {
		b.WriteByte(' ')
		b.WriteString(quote(word))
	}
	return b.String()
}

// setNewline makes the variable that quote needs.
const setNewline = `_b_n=$(printf '\nx');_b_n=${_b_n%x};`
