package gateway

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUnmarshalTakesNothingForSomethingElse(t *testing.T) {
	type target struct {
		Path string `json:"path"`
	}
	for name, test := range map[string]struct {
		text, want string // the path, or what the error says
		fails      bool
	}{
		"plain":                     {`{"path":"a b"}`, "a b", false},
		"not ASCII":                 {`{"path":"ä🚢"}`, "ä🚢", false},
		"a surrogate pair":          {`{"path":"\ud83d\udea2x"}`, "🚢x", false},
		"an escaped backslash":      {`{"path":"\\ud800"}`, `\ud800`, false},
		"a replacement of theirs":   {`{"path":"\ufffd"}`, "\uFFFD", false},
		"bytes that are no UTF-8":   {"{\"path\":\"a\xffb\"}", "10: is not UTF-8", true},
		"the first half of a pair":  {`{"path":"a\ud800b"}`, "10: is not UTF-8, or half", true},
		"two first halves":          {`{"path":"\ud800\ud800"}`, "9: is not UTF-8, or half", true},
		"the second half of a pair": {`{"path":"\udc00"}`, "9: is not UTF-8, or half", true},
		"half a pair at the end":    {`{"path":"\ud800`, "is not UTF-8, or half", true},
		"no JSON":                   {`{"path"`, "7: unexpected end", true},
		"another type":              {`{"path":1}`, "cannot unmarshal number", true},
	} {
		t.Run(name, func(t *testing.T) {
			var got target
			err := unmarshal([]byte(test.text), &got)
			switch {
			case test.fails && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %q", err, test.want)
			case !test.fails && (err != nil || got.Path != test.want):
				t.Errorf("%q, %v; want %q", got.Path, err, test.want)
			}
		})
	}
	for _, text := range []string{`{"path":"a","PATH":"b"}`, `{"path":"a","pat\u0068":"a","Path":"b"}`, `{"` + "\u212a" + `":1,"k":2}`} {
		var got any
		if err := unmarshal([]byte(text), &got); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v", text, err)
		}
	}
	var nested any
	if err := unmarshal([]byte(`{"env":{"path":"a","PATH":"b"}}`), &nested); err != nil {
		t.Errorf("the environment's names differ in case: %v", err)
	}
}

func TestIsJSON(t *testing.T) {
	for contentType, want := range map[string]bool{
		"": true, "application/json": true, "Application/JSON; charset=utf-8": true, "application/vnd.x+json": true,
		"text/plain": false, "application/x-www-form-urlencoded": false, "text/json": false, ";": false, "application/json+": false,
	} {
		if got := isJSON(contentType); got != want {
			t.Errorf("%q: %v", contentType, got)
		}
	}
}

func TestWholeNumbersAreWholeHoweverTheyAreWritten(t *testing.T) {
	type target struct {
		Count *int            `json:"count"`
		Many  []int64         `json:"many"`
		Size  field[int64]    `json:"size"`
		Path  string          `json:"path"`
		Any   any             `json:"any"`
		Env   map[string]bool `json:"env"`
	}
	var got target
	if err := unmarshal([]byte(`{"count":7.0,"many":[1e3,-2,9007199254740993],"size":5.0,"path":"a\u0001<b","any":1.5,"env":{"A":true}}`), &got); err != nil {
		t.Fatal(err)
	}
	seven, five := 7, int64(5)
	want := target{Count: &seven, Many: []int64{1000, -2, 9007199254740993}, Size: field[int64]{true, &five}, Path: "a\x01<b", Any: 1.5, Env: map[string]bool{"A": true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	for _, text := range []string{`{"count":7.5}`, `{"count":1e300}`, `{"many":[1.5]}`, `{"path":1.0}`} {
		if err := unmarshal([]byte(text), new(target)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// FuzzUnmarshal: what is accepted is what encoding/json reads, and nothing in it
// was replaced.
func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{`{"a":"\ud83d\udea2"}`, `{"a":"\ud800"}`, `"\\\ud800"`, `{"a":1,"A":2}`, "\"\xff\"", `"\u"`, `\ud800`, `"\ud800\\udc00"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want any
		err := unmarshal(data, &got)
		if plain := json.Unmarshal(data, &want); err == nil && (plain != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("%q: %v, but encoding/json: %v, %v", data, got, want, plain)
		}
		text, ok := got.(string)
		if err == nil && ok && strings.ContainsRune(text, utf8.RuneError) && !strings.Contains(string(data), "\uFFFD") && !strings.Contains(strings.ToLower(string(data)), `\ufffd`) {
			t.Fatalf("%q: something was replaced: %q", data, text)
		}
	})
}
