package gateway

import (
	"net/url"
	"reflect"
	"testing"
)

func TestParseQuery(t *testing.T) {
	for text, want := range map[string]url.Values{
		"":                       {},
		"path=/a%20b+c&end=true": {"path": {"/a b c"}, "end": {"true"}},
		"path=/a;b":              {"path": {"/a;b"}},
		"path=a=b&&end":          {"path": {"a=b"}, "end": {""}},
		"path=%FF%00&path=x":     {"path": {"\xff\x00", "x"}},
		"p%61th=%E4":             {"path": {"\xe4"}},
	} {
		if got, err := parseQuery(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"%zz", "path=%", "path=%4", "%=x"} {
		if got, err := parseQuery(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzParseQuery: it differs from the standard library in semicolons alone.
func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{"a=b&c=d", "a=%41+b", "%zz=1", "a;b=c", "&&=", "a=b=c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseQuery(text)
		want, wantErr := url.ParseQuery(text)
		if wantErr == nil && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	})
}
