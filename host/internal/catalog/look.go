package catalog

import (
	"os"
	"path/filepath"
)

// Place is a folder in which a plugin was looked for.
type Place struct {
	// Dir is the folder, Path the file that the plugin would be there.
	Dir, Path string
	// Err is why that cannot be executed; nil if it can. It wraps
	// [io/fs.ErrNotExist] where there is none.
	Err error
}

// CheckExecutable returns why the file at path cannot be executed, nil if it can.
func CheckExecutable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return executable(path, info)
}

// Look tells of every folder what [Find] finds there, in order: it takes the first
// without an error.
func Look(plugin string, dirs []string) []Place {
	var places []Place
	for _, dir := range cleanDirs(dirs) {
		p := Place{Dir: dir, Path: filepath.Join(dir, fileName(plugin))}
		p.Err = CheckExecutable(p.Path)
		places = append(places, p)
	}
	return places
}
