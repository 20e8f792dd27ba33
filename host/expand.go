package host

import (
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${VAR} and ${VAR:-default}, in one pass: what a variable holds
// is not looked into again. $${ is a literal ${, and any other $ itself. Its
// errors name a variable and never repeat the text, which may hold a secret.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			b.WriteString(text)
			return b.String(), nil
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		b.WriteString(text[:i])
		inside, rest, ok := strings.Cut(text[i+2:], "}")
		if !ok {
			return "", fmt.Errorf("${ without its }: write $${ for a literal ${")
		}
		name, def, hasDefault := strings.Cut(inside, ":-")
		if !variableName.MatchString(name) {
			return "", fmt.Errorf("${…} does not hold a variable's name: want ${VAR} or ${VAR:-default}, or $${ for a literal ${")
		}
		value, set := lookup(name)
		switch {
		case set && (value != "" || !hasDefault):
			b.WriteString(value)
		case hasDefault:
			b.WriteString(def)
		default:
			return "", fmt.Errorf("the variable %s is not set: set it, or give a default as in ${%s:-…}", name, name)
		}
		text = rest
	}
}
