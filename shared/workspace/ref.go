package workspace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// maxIDLen is the longest id in bytes as written. Every service that we know
// of names its things in less, and it keeps an id within the length of a file
// name.
const maxIDLen = 255

// Ref is the only way back to a workspace. Its JSON form is
//
//	{"provider":"docker","id":"berth-3f62a91c0d5e4b78"}
//
// and its text form is docker/berth-3f62a91c0d5e4b78. Both are stored by
// applications and never change meaning; unknown JSON fields are ignored.
// Equal workspaces have equal refs, so a Ref is a fine map key.
type Ref struct {
	// Provider is the name of the configured provider, not of its plugin.
	Provider string
	// ID is the provider's own name of the workspace, encoded by [EncodeID]:
	// only the provider decodes it.
	ID string
}

// ParseRef reads the text form, provider/id. The error wraps [ErrInvalid] and
// says what is wrong with which part.
func ParseRef(s string) (Ref, error) {
	provider, id, ok := strings.Cut(s, "/")
	if !ok {
		return Ref{}, fmt.Errorf("ref %s: want provider/id, as in docker/berth-3f62a91c0d5e4b78: %w", quote(s), ErrInvalid)
	}
	ref := Ref{Provider: provider, ID: id}
	if err := ref.Validate(); err != nil {
		return Ref{}, err
	}
	return ref, nil
}

// SplitRefPath splits REF:PATH at its first colon, as command lines write a
// file in a workspace. The path is returned as it stands and may be empty.
func SplitRefPath(s string) (Ref, string, error) {
	text, path, ok := strings.Cut(s, ":")
	if !ok {
		return Ref{}, "", fmt.Errorf("%s: want REF:PATH, as in docker/berth-3f62a91c0d5e4b78:notes.txt: %w", quote(s), ErrInvalid)
	}
	ref, err := ParseRef(text)
	return ref, path, err
}

// Validate reports whether both parts follow their grammar. The error wraps
// [ErrInvalid].
func (r Ref) Validate() error {
	if err := ValidateName(r.Provider); err != nil {
		return fmt.Errorf("ref %s: provider: %w", quote(r.Provider+"/"+r.ID), err)
	}
	if _, err := DecodeID(r.ID); err != nil {
		return fmt.Errorf("ref %s: %w", quote(r.Provider+"/"+r.ID), err)
	}
	return nil
}

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String returns the text form.
func (r Ref) String() string { return r.Provider + "/" + r.ID }

// MarshalText returns the text form of a valid ref.
func (r Ref) MarshalText() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText is [ParseRef].
func (r *Ref) UnmarshalText(text []byte) error {
	ref, err := ParseRef(string(text))
	if err != nil {
		return err
	}
	*r = ref
	return nil
}

// refJSON is the JSON form.
type refJSON struct {
	Provider string `json:"provider"`
	ID       string `json:"id"`
}

// MarshalJSON returns the JSON form of a valid ref.
func (r Ref) MarshalJSON() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(refJSON(r))
}

// UnmarshalJSON reads the JSON form and ignores members that it does not know,
// "Provider" and "ID" among them: names are exact. Of a member that is there
// twice the last one counts, as JSON's readers have it everywhere. A string is read
// as the text form: that is what a Ref is as the key of a map. The error wraps
// [ErrInvalid].
func (r *Ref) UnmarshalJSON(data []byte) error {
	var text string
	if bytes.HasPrefix(data, []byte{'"'}) && json.Unmarshal(data, &text) == nil {
		return r.UnmarshalText([]byte(text))
	}
	// A struct would take names in any case.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return fmt.Errorf(`ref: want {"provider": …, "id": …}: %w (%w)`, ErrInvalid, err)
	}
	var ref Ref
	for _, m := range []struct {
		name  string
		value *string
	}{{"provider", &ref.Provider}, {"id", &ref.ID}} {
		raw, ok := members[m.name]
		if !ok || string(raw) == "null" {
			return fmt.Errorf("ref: no %q: %w", m.name, ErrInvalid)
		}
		if err := json.Unmarshal(raw, m.value); err != nil {
			return fmt.Errorf("ref: %q is not a string: %w", m.name, ErrInvalid)
		}
	}
	if err := ref.Validate(); err != nil {
		return err
	}
	*r = ref
	return nil
}

const upperHex = "0123456789ABCDEF"

// EncodeID writes a service's own name of a workspace, any bytes, as the id of
// a ref: bytes outside [A-Za-z0-9._-] become %XX. Every name has exactly one
// encoding. An empty name, or one whose encoding is over 255 bytes, is
// [ErrInvalid].
func EncodeID(name string) (string, error) {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plainIDByte(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	if err := checkIDLen(b.Len()); err != nil {
		return "", err
	}
	return b.String(), nil
}

// DecodeID is the inverse of [EncodeID], and refuses whatever that would not
// write, %41 too: the error wraps [ErrInvalid] and names the offset.
func DecodeID(id string) (string, error) {
	if err := checkIDLen(len(id)); err != nil {
		return "", err
	}
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		c := id[i]
		if plainIDByte(c) {
			b.WriteByte(c)
			continue
		}
		if c != '%' {
			return "", fmt.Errorf("id %s: byte %d (0x%02X) must be written %%%02X: %w", quote(id), i, c, c, ErrInvalid)
		}
		if i+2 >= len(id) {
			return "", fmt.Errorf("id %s: incomplete %%XX at byte %d: %w", quote(id), i, ErrInvalid)
		}
		hi, lo := strings.IndexByte(upperHex, id[i+1]), strings.IndexByte(upperHex, id[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("id %s: %%XX at byte %d needs two upper-case hex digits: %w", quote(id), i, ErrInvalid)
		}
		decoded := byte(hi<<4 | lo)
		if plainIDByte(decoded) {
			return "", fmt.Errorf("id %s: %s at byte %d must be written %c: %w", quote(id), id[i:i+3], i, decoded, ErrInvalid)
		}
		b.WriteByte(decoded)
		i += 2
	}
	return b.String(), nil
}

func checkIDLen(n int) error {
	switch {
	case n == 0:
		return fmt.Errorf("id is empty: %w", ErrInvalid)
	case n > maxIDLen:
		return fmt.Errorf("id has %d bytes, at most %d are allowed: %w", n, maxIDLen, ErrInvalid)
	}
	return nil
}

func plainIDByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// quote makes any bytes fit to stand in a message, and short.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
