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

// Look tells of every folder what [Find] finds there, in order: it takes the first
// without an error.
func Look(plugin string, dirs []string) []Place {
	var places []Place
	for _, dir := range cleanDirs(dirs) {
		p := Place{Dir: dir, Path: filepath.Join(dir, fileName(plugin))}
		info, err := os.Stat(p.Path)
		if p.Err = err; err == nil {
			p.Err = executable(p.Path, info)
		}
		places = append(places, p)
	}
	return places
}
