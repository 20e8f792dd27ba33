// Package secret takes the secrets of a configuration out of texts (contract B7), in
// whichever form those who write texts put them.
package secret

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// Redacted stands where a secret was.
	Redacted = "[redacted]"
	// minLength is that of the shortest value that is looked for: a shorter one stands
	// in texts by chance, and its replacement would tell where.
	minLength = 4
	// minLine is that of the shortest line of a secret of several lines, which is looked
	// for by itself: a log has them one by one. Shorter ones, as of YAML, are common
	// words.
	minLine = 8
)

// Replacer takes secrets out of texts: nil if there are none to look for.
func Replacer(secrets []string) *strings.Replacer {
	var all []string
	for _, secret := range secrets {
		if len(secret) < minLength {
			continue
		}
		all = append(all, forms(secret)...)
		lines := strings.FieldsFunc(secret, func(r rune) bool { return r == '\n' || r == '\r' })
		for _, line := range lines {
			if line = strings.TrimSpace(line); len(lines) > 1 && len(line) >= minLine {
				all = append(all, forms(line)...)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	// A secret may begin another one: the longer is looked for first.
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(all))
	for _, form := range all {
		pairs = append(pairs, form, Redacted)
	}
	return strings.NewReplacer(pairs...)
}

// forms are how a secret is written: as it is, in JSON, quoted by Go, and in a URL's
// query or path.
func forms(secret string) []string {
	list := []string{secret, inside(strconv.Quote(secret)), inside(strconv.QuoteToASCII(secret)), url.QueryEscape(secret), url.PathEscape(secret)}
	if text, err := json.Marshal(secret); err == nil {
		list = append(list, inside(string(text)))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// inside is a quoted text without its quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }
