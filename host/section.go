package host

import (
	"math"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Section is a value in a configuration file, for a program that keeps a part of
// its own there. It is read as strictly as the rest of the file: errors are
// [*ConfigError] values with their line, and repeat nothing of the file. The zero
// value is one that is not there.
type Section struct {
	decoder *decoder
	dir     string
	path    string
	node    ast.Node
}

// Section is a part of the file that [LoadConfig] leaves to another: "gateway", which
// host/gateway reads, or "admin_socket", which is berth's.
func (c Config) Section(name string) Section { return c.sections[name] }

// Exists says whether the file has it, with a value that is not null.
func (s Section) Exists() bool { return s.decoder != nil && !isNull(s.node) }

// Each calls f for every key of a mapping, and ends at the first error.
func (s Section) Each(f func(key string, value Section) error) error {
	if s.decoder == nil {
		return nil
	}
	return s.decoder.mapping(s.path, s.node, func(key, path string, value ast.Node) error {
		return f(key, Section{s.decoder, s.dir, path, value})
	})
}

// Text is a string, with its variables expanded.
func (s Section) Text() (string, error) {
	if s.decoder == nil {
		return "", s.Fault("is missing")
	}
	return s.decoder.string(s.path, s.node)
}

// Path is a string that is a path: a relative one begins at the file's folder.
func (s Section) Path() (string, error) {
	text, err := s.Text()
	if err != nil {
		return "", err
	}
	return s.ResolvePath(text), nil
}

// ResolvePath makes a path absolute: a relative one begins at the file's folder,
// and ~ is the user's home.
func (s Section) ResolvePath(path string) string { return resolvePath(s.dir, path) }

// Integer is a whole number that is not negative.
func (s Section) Integer() (int64, error) {
	const want = "a whole number that is not negative"
	if s.decoder == nil {
		return 0, s.Fault("is missing")
	}
	number, ok := s.node.(*ast.IntegerNode)
	if !ok {
		return 0, s.decoder.wrongType(s.path, s.node, want)
	}
	switch n := number.Value.(type) {
	case int64:
		if n >= 0 {
			return n, nil
		}
	case uint64:
		if n <= math.MaxInt64 {
			return int64(n), nil
		}
	}
	return 0, s.Fault("want " + want)
}

// Duration is a number of seconds, or a string such as 90s or 1h30m. It is not
// negative.
func (s Section) Duration() (time.Duration, error) {
	const want = "a number of seconds, or a duration with its unit such as 90s or 1h30m"
	if s.decoder == nil {
		return 0, s.Fault("is missing")
	}
	switch s.node.(type) {
	case *ast.IntegerNode:
		seconds, err := s.Integer()
		if err == nil && seconds > int64(math.MaxInt64/time.Second) {
			err = s.Fault("want " + want)
		}
		return time.Duration(seconds) * time.Second, err
	case *ast.StringNode, *ast.LiteralNode:
		text, err := s.Text()
		if err != nil {
			return 0, err
		}
		if seconds, err := strconv.ParseInt(text, 10, 32); err == nil && seconds >= 0 { // of a variable
			return time.Duration(seconds) * time.Second, nil
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return 0, s.Fault("want " + want)
		}
		return d, nil
	}
	return 0, s.decoder.wrongType(s.path, s.node, want)
}

// Object is a mapping of anything that JSON can say. Null is nil.
func (s Section) Object() (map[string]any, error) {
	if !s.Exists() {
		return nil, nil
	}
	value, err := s.decoder.value(s.path, s.node)
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, s.decoder.wrongType(s.path, s.node, "a mapping")
	}
	return object, nil
}

// Unknown is the error about a key that is none of those that there are.
func (s Section) Unknown(key string, known ...string) error {
	return s.Fault(unknownKey(key, known))
}

// Fault makes an error about the value, at its line.
func (s Section) Fault(reason string) *ConfigError {
	if s.decoder == nil {
		return &ConfigError{Key: s.path, Reason: reason}
	}
	if n := line(s.node); n > 0 && !isNull(s.node) {
		return s.decoder.at(s.path, s.node, reason)
	}
	return s.decoder.source.fault(s.path, reason)
}
