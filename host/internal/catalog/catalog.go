// Package catalog finds plugin binaries: executable files berth-provider-NAME
// in a list of folders. It only looks; [Binary] says what was found, and package
// process runs it.
package catalog

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// Find returns the binary of a plugin by its name. The first folder that holds
// an executable one wins; empty folder names are passed over. An error is a
// [*NotFoundError], or wraps [workspace.ErrInvalid] if plugin is no name.
func Find(plugin string, dirs []string) (Binary, error) {
	if err := workspace.ValidateName(plugin); err != nil {
		return Binary{}, err
	}
	missed := &NotFoundError{Plugin: plugin}
	for _, dir := range cleanDirs(dirs) {
		path := filepath.Join(dir, fileName(plugin))
		missed.Dirs = append(missed.Dirs, dir)
		info, err := os.Stat(path)
		if err == nil {
			err = executable(path, info)
		} else if os.IsNotExist(err) {
			continue
		}
		if err != nil { // as a shell does, go on: a later folder may have a good one
			missed.Refused = append(missed.Refused, err)
			continue
		}
		return newBinary(plugin, path, info), nil
	}
	missed.Near = near(plugin, List(dirs))
	return Binary{}, missed
}

// List returns every plugin binary that [Find] would find, sorted by name.
func List(dirs []string) []Binary {
	found := make(map[string]Binary)
	for _, dir := range cleanDirs(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a folder that is not there holds no plugin
		}
		for _, entry := range entries {
			plugin, ok := pluginName(entry.Name())
			if _, first := found[plugin]; !ok || first {
				continue
			}
			path := filepath.Join(dir, entry.Name())
			if info, err := os.Stat(path); err == nil && executable(path, info) == nil {
				found[plugin] = newBinary(plugin, path, info)
			}
		}
	}
	list := make([]Binary, 0, len(found))
	for _, bin := range found {
		list = append(list, bin)
	}
	slices.SortFunc(list, func(a, b Binary) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// cleanDirs makes the folders absolute, each one once.
func cleanDirs(dirs []string) []string {
	var out []string
	for _, dir := range dirs {
		if dir == "" {
			continue // filepath.Abs would make it the working directory
		}
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// exeSuffix ends the name of an executable file on this system.
func exeSuffix() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// BinaryName is what the file of a plugin's binary is called.
func BinaryName(plugin string) string { return fileName(plugin) }

func fileName(plugin string) string { return wire.BinaryPrefix + plugin + exeSuffix() }

func pluginName(file string) (string, bool) {
	rest, ok := strings.CutPrefix(file, wire.BinaryPrefix)
	if !ok {
		return "", false
	}
	name, ok := strings.CutSuffix(rest, exeSuffix())
	return name, ok && workspace.ValidateName(name) == nil
}
