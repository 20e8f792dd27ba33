package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	namePattern  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	tokenPattern = regexp.MustCompile(`^berth-[0-9a-f]{16}$`)
)

// ValidateName checks the name of a provider or of a workspace: 1 to 63 of
// a-z, 0-9 and -, with a letter or digit at both ends. The error wraps
// [ErrInvalid].
func ValidateName(name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	if name == "" {
		return fmt.Errorf("name is empty: %w", ErrInvalid)
	}
	return fmt.Errorf("name %s: want 1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends: %w", quote(name), ErrInvalid)
}

// ValidateWorkspaceName is [ValidateName] for a workspace that a caller names,
// which in addition must not look like a token. The error wraps [ErrInvalid].
func ValidateWorkspaceName(name string) error {
	if IsToken(name) {
		return fmt.Errorf("name %s: has the form of a token, which only the host gives: %w", quote(name), ErrInvalid)
	}
	return ValidateName(name)
}

// NewToken returns a fresh token, berth-<16 hex digits>: the name under which
// whatever a host creates can be found again (contract L2).
func NewToken() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return "berth-" + hex.EncodeToString(b[:])
}

// IsToken reports whether s has the form of a token.
func IsToken(s string) bool { return tokenPattern.MatchString(s) }

// Labels that every provider sets on what it creates. Keys under
// [LabelPrefix] are ours; [ValidateLabels] refuses them to callers.
const (
	LabelPrefix   = "dev.berth."
	LabelManaged  = LabelPrefix + "managed"  // always "true"
	LabelProvider = LabelPrefix + "provider" // the provider's name
)

var (
	labelName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
)

// maxLabelPrefix is the longest DNS name, as in Kubernetes.
const maxLabelPrefix = 253

// ValidateLabels checks labels against Kubernetes' syntax, which holds on every
// provider: a key is an optional DNS prefix with a slash and a name of at most
// 63 characters, a value is empty or of at most 63. Keys of ours are refused.
// The error wraps [ErrInvalid] and names the key.
func ValidateLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(key, LabelPrefix) {
			return fmt.Errorf("label %s: keys that begin with %s are reserved: %w", quote(key), LabelPrefix, ErrInvalid)
		}
		prefix, name, ok := strings.Cut(key, "/")
		if !ok {
			prefix, name = "", key
		}
		if ok && (len(prefix) > maxLabelPrefix || !labelPrefix.MatchString(prefix)) {
			return fmt.Errorf("label %s: the part before the slash must be a DNS name: %w", quote(key), ErrInvalid)
		}
		if !labelName.MatchString(name) {
			return fmt.Errorf("label %s: a key is 1 to 63 of A-Z, a-z, 0-9, -, _ and ., with a letter or digit at both ends: %w", quote(key), ErrInvalid)
		}
		if value := labels[key]; value != "" && !labelName.MatchString(value) {
			return fmt.Errorf("label %s: value %s: want at most 63 of A-Z, a-z, 0-9, -, _ and ., with a letter or digit at both ends: %w", quote(key), quote(value), ErrInvalid)
		}
	}
	return nil
}
