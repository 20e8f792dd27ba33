// Package environ reads the environment that a command line gives to a command
// in a workspace: NAME=value, NAME alone, and files of them. Its errors never
// repeat a value.
package environ

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Lookup finds a variable in berth's own environment, as [os.LookupEnv] does.
type Lookup func(name string) (value string, ok bool)

// Add puts one assignment into env: NAME=value, or NAME for the value that
// lookup has.
func Add(env map[string]string, assignment string, lookup Lookup) error {
	name, value, ok := strings.Cut(assignment, "=")
	if err := checkName(name); err != nil {
		return err
	}
	if !ok {
		if value, ok = lookup(name); !ok {
			return fmt.Errorf("%s is not set in berth's own environment: set it, or write %s=VALUE", name, name)
		}
	}
	if strings.IndexByte(value, 0) >= 0 {
		return fmt.Errorf("the value of %s holds a NUL byte, which no environment can", name)
	}
	env[name] = value
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a variable without a name: want NAME=VALUE, or NAME to pass on berth's own")
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("the name %q holds a NUL byte, which no environment can", name)
	}
	return nil
}

// AddFile puts the assignments of a file into env, one on a line. Empty lines
// and lines that begin with # are comments; values are taken literally, with
// quotes and spaces and bytes of any kind.
func AddFile(env map[string]string, file string, lookup Lookup) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // a byte order mark that editors leave
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := Add(env, line, lookup); err != nil {
			return fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	return nil
}
