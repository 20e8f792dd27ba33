package workspace_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

var refTexts = []struct {
	text string
	ref  workspace.Ref // zero: a parse error
	why  string        // part of the error's text
}{
	{"docker/berth-3f62a91c0d5e4b78", workspace.Ref{Provider: "docker", ID: "berth-3f62a91c0d5e4b78"}, ""},
	{"a/b", workspace.Ref{Provider: "a", ID: "b"}, ""},
	{"0/0", workspace.Ref{Provider: "0", ID: "0"}, ""},
	{"build-2/A.z_9-", workspace.Ref{Provider: "build-2", ID: "A.z_9-"}, ""},
	{"k/%2F%00%FF%25", workspace.Ref{Provider: "k", ID: "%2F%00%FF%25"}, ""},
	{"k/" + strings.Repeat("x", 255), workspace.Ref{Provider: "k", ID: strings.Repeat("x", 255)}, ""},
	{"k/" + strings.Repeat("%2F", 85), workspace.Ref{Provider: "k", ID: strings.Repeat("%2F", 85)}, ""},
	{strings.Repeat("p", 63) + "/x", workspace.Ref{Provider: strings.Repeat("p", 63), ID: "x"}, ""},

	{"", workspace.Ref{}, "want provider/id"},
	{"docker", workspace.Ref{}, "want provider/id"},
	{"/", workspace.Ref{}, "name is empty"},
	{"/x", workspace.Ref{}, "name is empty"},
	{"docker/", workspace.Ref{}, "id is empty"},
	{"Docker/x", workspace.Ref{}, "a-z, 0-9 and -"},
	{"-docker/x", workspace.Ref{}, "at both ends"},
	{"docker-/x", workspace.Ref{}, "at both ends"},
	{"doc_ker/x", workspace.Ref{}, "provider"},
	{"döcker/x", workspace.Ref{}, "provider"},
	{" docker/x", workspace.Ref{}, "provider"},
	{"docker\n/x", workspace.Ref{}, "provider"},
	{strings.Repeat("p", 64) + "/x", workspace.Ref{}, "1 to 63"},
	{"k/" + strings.Repeat("x", 256), workspace.Ref{}, "256 bytes, at most 255"},
	{"k/" + strings.Repeat("%2F", 86), workspace.Ref{}, "258 bytes, at most 255"},
	{"docker/a/b", workspace.Ref{}, "byte 1 (0x2F) must be written %2F"},
	{"docker/a b", workspace.Ref{}, "byte 1 (0x20) must be written %20"},
	{"docker/a\n", workspace.Ref{}, "byte 1 (0x0A) must be written %0A"},
	{"docker/a\x00", workspace.Ref{}, "must be written %00"},
	{"docker/a\xff", workspace.Ref{}, "must be written %FF"},
	{"docker/é", workspace.Ref{}, "byte 0 (0xC3) must be written %C3"},
	{"docker/a:b", workspace.Ref{}, "must be written %3A"},
	{"docker/a~b", workspace.Ref{}, "must be written %7E"},
	{"docker/%", workspace.Ref{}, "incomplete %XX at byte 0"},
	{"docker/x%4", workspace.Ref{}, "incomplete %XX at byte 1"},
	{"docker/%2f", workspace.Ref{}, "upper-case hex"},
	{"docker/%G0", workspace.Ref{}, "upper-case hex"},
	{"docker/%+1", workspace.Ref{}, "upper-case hex"},
	{"docker/%%41", workspace.Ref{}, "upper-case hex"},
	{"docker/%41", workspace.Ref{}, "%41 at byte 0 must be written A"},
	{"docker/a%2Eb", workspace.Ref{}, "%2E at byte 1 must be written ."},
	{"docker/%2D", workspace.Ref{}, "must be written -"},
	{"docker/%5F", workspace.Ref{}, "must be written _"},
}

func TestParseRef(t *testing.T) {
	for _, tt := range refTexts {
		ref, err := workspace.ParseRef(tt.text)
		if tt.why == "" {
			if err != nil || ref != tt.ref {
				t.Errorf("ParseRef(%q) = %v, %v; want %v", tt.text, ref, err, tt.ref)
			}
			if err := ref.Validate(); err != nil {
				t.Errorf("%q: Validate: %v", tt.text, err)
			}
			if ref.String() != tt.text {
				t.Errorf("%q: String is %q", tt.text, ref)
			}
			continue
		}
		checkInvalid(t, "ParseRef "+tt.text, err, tt.why)
		if !ref.IsZero() {
			t.Errorf("ParseRef(%q) = %v beside its error", tt.text, ref)
		}
	}
}

// checkInvalid checks that err is an ErrInvalid that says why, in one line that
// a terminal can show, and not too long.
func checkInvalid(t *testing.T, what string, err error, why string) {
	t.Helper()
	if !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("%q: error %v, want ErrInvalid", what, err)
		return
	}
	if !strings.Contains(err.Error(), why) {
		t.Errorf("%q: error %q does not say %q", what, err, why)
	}
	for _, c := range []byte(err.Error()) {
		if c < ' ' || c == 0x7f {
			t.Errorf("%q: error %q holds a control byte", what, err)
			break
		}
	}
	if len(err.Error()) > 600 {
		t.Errorf("%q: error of %d bytes", what, len(err.Error()))
	}
}

func TestRefTextRoundTrip(t *testing.T) {
	for _, tt := range refTexts {
		var ref workspace.Ref
		err := ref.UnmarshalText([]byte(tt.text))
		if (err == nil) != (tt.why == "") || ref != tt.ref {
			t.Errorf("UnmarshalText(%q) = %v, %v; want %v", tt.text, ref, err, tt.ref)
		}
		if err != nil {
			continue
		}
		text, err := ref.MarshalText()
		if err != nil || string(text) != tt.text {
			t.Errorf("MarshalText of %q = %q, %v", tt.text, text, err)
		}
	}
	// A ref is a fine key, in Go and in JSON.
	in := map[workspace.Ref]int{{Provider: "docker", ID: "a%2Fb"}: 1}
	data, err := json.Marshal(in)
	if err != nil || string(data) != `{"docker/a%2Fb":1}` {
		t.Fatalf("as a key: %s, %v", data, err)
	}
	var out map[workspace.Ref]int
	if err := json.Unmarshal(data, &out); err != nil || out[workspace.Ref{Provider: "docker", ID: "a%2Fb"}] != 1 {
		t.Errorf("from a key: %v, %v", out, err)
	}
}

func TestRefOfAFailedUnmarshalIsUntouched(t *testing.T) {
	want := workspace.Ref{Provider: "docker", ID: "x"}
	ref := want
	if err := ref.UnmarshalText([]byte("nonsense")); err == nil || ref != want {
		t.Errorf("UnmarshalText: %v, %v", ref, err)
	}
	if err := ref.UnmarshalJSON([]byte(`{"provider":"local"}`)); err == nil || ref != want {
		t.Errorf("UnmarshalJSON: %v, %v", ref, err)
	}
}

func TestInvalidRefsAreNotWritten(t *testing.T) {
	for _, ref := range []workspace.Ref{
		{}, {Provider: "docker"}, {ID: "x"}, {Provider: "Docker", ID: "x"}, {Provider: "docker", ID: "a/b"}, {Provider: "docker", ID: "%41"},
	} {
		checkInvalid(t, "Validate "+ref.String(), ref.Validate(), "")
		if text, err := ref.MarshalText(); err == nil || text != nil {
			t.Errorf("MarshalText of %q = %q, %v", ref, text, err)
		}
		if data, err := json.Marshal(ref); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("JSON of %q = %s, %v", ref, data, err)
		}
	}
}

func TestRefIsZero(t *testing.T) {
	if !(workspace.Ref{}).IsZero() || (workspace.Ref{Provider: "a"}).IsZero() || (workspace.Ref{ID: "a"}).IsZero() {
		t.Error("IsZero is wrong")
	}
	data, err := json.Marshal(struct {
		Ref workspace.Ref `json:"ref,omitzero"`
	}{})
	if err != nil || string(data) != "{}" {
		t.Errorf("omitzero: %s, %v", data, err)
	}
}

var refJSONs = []struct {
	data string
	ref  workspace.Ref
	why  string
}{
	{`{"provider":"docker","id":"a%2Fb"}`, workspace.Ref{Provider: "docker", ID: "a%2Fb"}, ""},
	{`{"id":"x","provider":"docker"}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	{" {\n\t\"provider\" : \"docker\" , \"id\" : \"x\" } ", workspace.Ref{Provider: "docker", ID: "x"}, ""},
	{`{"provider":"\u0064ocker","i\u0064":"x"}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	// Unknown members are ignored, whatever they hold and however like ours they look.
	{`{"provider":"docker","id":"x","region":{"a":[1,null]},"v":2}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	{`{"provider":"docker","id":"x","Provider":"evil","PROVIDER":7,"ID":"y","Id":null}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	{`{"ID":"y","PROVIDER":"evil","provider":"docker","id":"x"}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	{`{"provider":"docker","id":"x","ıd":"y","id ":"z"}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	// The last one counts.
	{`{"provider":"local","id":"y","provider":"docker","id":"x"}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	{`{"provider":7,"id":"x","provider":"docker"}`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	// The text form.
	{`"docker/x"`, workspace.Ref{Provider: "docker", ID: "x"}, ""},
	{` "\u0064ocker\/a%2Fb" `, workspace.Ref{Provider: "docker", ID: "a%2Fb"}, ""},

	{`{"provider":"docker","id":"x","id":null}`, workspace.Ref{}, `no "id"`},
	{`{"PROVIDER":"docker","id":"x"}`, workspace.Ref{}, `no "provider"`},
	{`{"provider":"docker","ID":"x"}`, workspace.Ref{}, `no "id"`},
	{`{"provider":"docker","iD":"x"}`, workspace.Ref{}, `no "id"`},
	{`{}`, workspace.Ref{}, `no "provider"`},
	{`{"provider":"docker"}`, workspace.Ref{}, `no "id"`},
	{`{"id":"x"}`, workspace.Ref{}, `no "provider"`},
	{`{"provider":null,"id":"x"}`, workspace.Ref{}, `no "provider"`},
	{`{"provider": null ,"id":"x"}`, workspace.Ref{}, `no "provider"`},
	{`{"provider":"","id":"x"}`, workspace.Ref{}, "name is empty"},
	{`{"provider":"docker","id":""}`, workspace.Ref{}, "id is empty"},
	{`{"provider":["docker"],"id":"x"}`, workspace.Ref{}, `"provider" is not a string`},
	{`{"provider":"docker","id":7}`, workspace.Ref{}, `"id" is not a string`},
	{`{"provider":"docker","id":"a/b"}`, workspace.Ref{}, "must be written %2F"},
	{`{"provider":"docker","id":"%41"}`, workspace.Ref{}, "must be written A"},
	{"{\"provider\":\"docker\",\"id\":\"a\xff\"}", workspace.Ref{}, "must be written %EF"}, // U+FFFD by then
	{`{"provider":"docker","id":"\ud800"}`, workspace.Ref{}, "must be written %EF"},
	{`null`, workspace.Ref{}, `no "provider"`},
	{`"docker"`, workspace.Ref{}, "want provider/id"},
	{`"docker/%41"`, workspace.Ref{}, "must be written A"},
	{`""`, workspace.Ref{}, "want provider/id"},
	{`[]`, workspace.Ref{}, "want {"},
	{`7`, workspace.Ref{}, "want {"},
}

func TestRefJSON(t *testing.T) {
	for _, tt := range refJSONs {
		var ref workspace.Ref
		err := json.Unmarshal([]byte(tt.data), &ref)
		if tt.why != "" {
			checkInvalid(t, tt.data, err, tt.why)
			continue
		}
		if err != nil || ref != tt.ref {
			t.Errorf("%s = %v, %v; want %v", tt.data, ref, err, tt.ref)
			continue
		}
		data, err := json.Marshal(ref)
		want := `{"provider":"` + ref.Provider + `","id":"` + ref.ID + `"}`
		if err != nil || string(data) != want {
			t.Errorf("written again: %s, %v; want %s", data, err, want)
		}
	}
	for _, data := range []string{``, `{`, `{"provider":"docker","id":"x"`, `{"provider":"docker","id":"x"}}`, `nul`, `"docker/x`} {
		var ref workspace.Ref
		checkInvalid(t, data, ref.UnmarshalJSON([]byte(data)), "ref: want {")
	}
}

func TestSplitRefPath(t *testing.T) {
	docker := workspace.Ref{Provider: "docker", ID: "x"}
	for _, tt := range []struct {
		in   string
		ref  workspace.Ref
		path string
		why  string
	}{
		{"docker/x:notes.txt", docker, "notes.txt", ""},
		{"docker/x:", docker, "", ""},
		{"docker/x:/etc/a:b:c", docker, "/etc/a:b:c", ""},
		{"docker/x::", docker, ":", ""},
		{"docker/x:a\xff\n", docker, "a\xff\n", ""},
		{"docker/x", workspace.Ref{}, "", "want REF:PATH"},
		{"", workspace.Ref{}, "", "want REF:PATH"},
		{":/etc/passwd", workspace.Ref{}, "", "want provider/id"},
		{"/etc/pa:sswd", workspace.Ref{}, "", "name is empty"},
	} {
		ref, path, err := workspace.SplitRefPath(tt.in)
		if tt.why != "" {
			checkInvalid(t, tt.in, err, tt.why)
			continue
		}
		if err != nil || ref != tt.ref || path != tt.path {
			t.Errorf("%q = %v, %q, %v", tt.in, ref, path, err)
		}
	}
}

func TestEncodeID(t *testing.T) {
	for _, tt := range []struct{ name, id string }{
		{"berth-3f62a91c0d5e4b78", "berth-3f62a91c0d5e4b78"},
		{"AZaz09._-", "AZaz09._-"},
		{"ns/pod", "ns%2Fpod"},
		{"100%", "100%25"},
		{"%41", "%2541"},
		{"\x00\xff", "%00%FF"},
		{"é", "%C3%A9"},
		{"a b~c:d", "a%20b%7Ec%3Ad"},
		{strings.Repeat("/", 85), strings.Repeat("%2F", 85)},
	} {
		id, err := workspace.EncodeID(tt.name)
		if err != nil || id != tt.id {
			t.Errorf("EncodeID(%q) = %q, %v; want %q", tt.name, id, err, tt.id)
		}
		name, err := workspace.DecodeID(tt.id)
		if err != nil || name != tt.name {
			t.Errorf("DecodeID(%q) = %q, %v; want %q", tt.id, name, err, tt.name)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 256), strings.Repeat("/", 86)} {
		id, err := workspace.EncodeID(name)
		checkInvalid(t, name, err, "id ")
		if id != "" {
			t.Errorf("EncodeID of %d bytes = %q beside its error", len(name), id)
		}
	}
}

// Every byte has one encoding: itself or its %XX, never both.
func TestEveryByteHasOneEncoding(t *testing.T) {
	seen := map[string]int{}
	for c := range 256 {
		id, err := workspace.EncodeID(string([]byte{byte(c)}))
		if err != nil {
			t.Fatalf("0x%02X: %v", c, err)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("0x%02X and 0x%02X are both %q", c, other, id)
		}
		seen[id] = c
		plain := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", byte(c)) >= 0
		if plain != (len(id) == 1) {
			t.Errorf("0x%02X is %q", c, id)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	for _, tt := range refTexts {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := workspace.ParseRef(text)
		if err != nil {
			if !errors.Is(err, workspace.ErrInvalid) || !ref.IsZero() {
				t.Fatalf("%v beside %v", ref, err)
			}
			return
		}
		if ref.String() != text {
			t.Fatalf("%q is written %q", text, ref)
		}
		data, err := json.Marshal(ref)
		if err != nil {
			t.Fatal(err)
		}
		var again workspace.Ref
		if err := json.Unmarshal(data, &again); err != nil || again != ref {
			t.Fatalf("through JSON %s: %v, %v", data, again, err)
		}
	})
}

func FuzzRefJSON(f *testing.F) {
	for _, tt := range refJSONs {
		f.Add([]byte(tt.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var ref workspace.Ref
		if err := json.Unmarshal(data, &ref); err != nil {
			if !ref.IsZero() {
				t.Fatalf("%v beside %v", ref, err)
			}
			return
		}
		// What is read follows the grammar, and reads the same when written.
		parsed, err := workspace.ParseRef(ref.String())
		if err != nil || parsed != ref {
			t.Fatalf("%q from %s: %v, %v", ref, data, parsed, err)
		}
		// Only members of exactly these names count.
		if strings.HasPrefix(strings.TrimLeft(string(data), " \t\r\n"), `"`) {
			return
		}
		var members map[string]any
		if err := json.Unmarshal(data, &members); err != nil || members["provider"] != ref.Provider || members["id"] != ref.ID {
			t.Fatalf("%v from %s", ref, data)
		}
	})
}

func FuzzDecodeID(f *testing.F) {
	for _, tt := range refTexts {
		_, id, _ := strings.Cut(tt.text, "/")
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		name, err := workspace.DecodeID(id)
		if err != nil {
			if !errors.Is(err, workspace.ErrInvalid) || name != "" {
				t.Fatalf("%q beside %v", name, err)
			}
			return
		}
		again, err := workspace.EncodeID(name)
		if err != nil || again != id {
			t.Fatalf("%q decodes to %q, which is written %q (%v)", id, name, again, err)
		}
	})
}

func FuzzEncodeID(f *testing.F) {
	for _, name := range []string{"", "x", "a/b", "%41", "\xff\x00", strings.Repeat("/", 86)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, err := workspace.EncodeID(name)
		if err != nil {
			if name != "" && len(name) <= 85 { // 85 bytes always fit
				t.Fatalf("%q: %v", name, err)
			}
			return
		}
		again, err := workspace.DecodeID(id)
		if err != nil || again != name {
			t.Fatalf("%q is written %q, which decodes to %q (%v)", name, id, again, err)
		}
		if _, err := workspace.ParseRef("p/" + id); err != nil {
			t.Fatal(err)
		}
	})
}
