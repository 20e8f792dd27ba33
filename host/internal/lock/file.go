package lock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"
)

// maxFile is far more than any lock file has.
const maxFile = 4 << 20

// heading is the beginning of every lock file.
const heading = `# Written by "berth lock": which bytes of each plugin may run. Keep it with berth.yaml.
`

// Read reads a lock file. One that is not there is an error that wraps
// [fs.ErrNotExist].
func Read(path string) (File, error) {
	file, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("lock file: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return File{}, fmt.Errorf("lock file: %w", err)
	}
	if len(data) > maxFile {
		return File{}, fmt.Errorf("lock file %s: is over %d bytes", path, maxFile)
	}
	parsed, err := parse(data)
	if err != nil {
		return File{}, fmt.Errorf("lock file %s: %w: put back a whole one, or remove it and lock what is installed", path, err)
	}
	return parsed, nil
}

func parse(data []byte) (f File, err error) {
	defer func() {
		if r := recover(); r != nil { // the library's own fault, on input that no one writes
			err = errors.New("is not YAML that can be read")
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := decoder.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return f, errors.New("is empty")
		}
		return f, errors.New(yaml.FormatError(err, false, false))
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return f, errors.New("has a second document: want one")
	}
	return f, f.validate()
}

// Update reads a lock file, which need not be there, has it changed, and writes it
// in one step. Two at once come after each other.
func Update(path string, change func(*File) error) error {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved // or the link would be replaced
	}
	dir := filepath.Dir(path)
	release, err := hold(dir)
	if err != nil {
		return fmt.Errorf("lock file %s: waiting for whoever changes it: %w", path, err)
	}
	defer release()
	f, err := Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f = File{Format: format}
	case err != nil:
		return err
	}
	if f.Plugins == nil {
		f.Plugins = make(map[string]Plugin)
	}
	if err := change(&f); err != nil {
		return err
	}
	if err := write(path, f); err != nil {
		return fmt.Errorf("lock file %s: %w", path, err)
	}
	return nil
}

func write(path string, f File) (err error) {
	if err := f.validate(); err != nil {
		return err
	}
	text, err := yaml.MarshalWithOptions(f, yaml.Indent(2))
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+FileName+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err := tmp.Write(append([]byte(heading), text...)); err != nil {
		return err
	}
	// It is kept with the configuration, for others to read.
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
