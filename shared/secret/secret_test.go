package secret_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/secret"
)

func TestReplacer(t *testing.T) {
	const odd, lines = "p@ss/\"w&rd\\é", "-----BEGIN-----\n  MIIEvQIBADANBgkq\r\nab\n"
	r := secret.Replacer([]string{"key", "key-long", "abc", odd, lines})
	quoted, err := json.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"key-long key-lon abc":                   "[redacted] key-lon abc",
		"it is " + odd + ".":                     "it is [redacted].",
		"json " + string(quoted):                 `json "[redacted]"`,
		fmt.Sprintf("quoted %q", odd):            `quoted "[redacted]"`,
		fmt.Sprintf("in ASCII %+q", odd):         `in ASCII "[redacted]"`,
		"?token=" + url.QueryEscape(odd):         "?token=[redacted]",
		"/" + url.PathEscape(odd) + "/x":         "/[redacted]/x",
		"all " + lines + "end":                   "all [redacted]end",
		fmt.Sprintf("all %q", lines):             `all "[redacted]"`,
		"one line MIIEvQIBADANBgkq of it, or ab": "one line [redacted] of it, or ab",
	} {
		if got := r.Replace(text); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
	if r := secret.Replacer([]string{"abc", ""}); r != nil {
		t.Errorf("nothing to look for: %v", r)
	}
}

// A secret that begins another one leaves nothing of it.
func TestTheLongerIsLookedForFirst(t *testing.T) {
	for _, secrets := range [][]string{{"secret", "secret-and-more"}, {"secret-and-more", "secret"}} {
		if got := secret.Replacer(secrets).Replace("secret-and-more secret"); got != strings.Repeat(secret.Redacted+" ", 2)[:21] {
			t.Errorf("%s", got)
		}
	}
}
