package hosttest

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// workDir is the working directory of every fake workspace.
const workDir = "/work"

// files is a tree of directories and files, by their clean absolute paths.
type files struct {
	name    string
	labels  map[string]string
	created time.Time

	mu    sync.Mutex
	nodes map[string]*node
}

type node struct {
	mode    fs.FileMode
	data    []byte
	modTime time.Time
}

func newFiles(name string, labels map[string]string) *files {
	now := time.Now()
	dir := func() *node { return &node{mode: fs.ModeDir | workspace.DefaultDirMode, modTime: now} }
	return &files{name: name, labels: maps.Clone(labels), created: now, nodes: map[string]*node{"/": dir(), workDir: dir()}}
}

// clean makes a path absolute.
func clean(name string) string {
	if !path.IsAbs(name) {
		name = workDir + "/" + name
	}
	return path.Clean(name)
}

// find returns what is at a clean path. The caller holds f.mu, as everywhere.
func (f *files) find(at string) (*node, error) {
	if n := f.nodes[at]; n != nil {
		return n, nil
	}
	for at != "/" { // what is below a file is not missing but wrong
		at = path.Dir(at)
		if n := f.nodes[at]; n != nil {
			if !n.mode.IsDir() {
				return nil, syscall.ENOTDIR
			}
			break
		}
	}
	return nil, fs.ErrNotExist
}

func info(at string, n *node) workspace.FileInfo {
	return workspace.FileInfo{Name: path.Base(at), Size: int64(len(n.data)), Mode: n.mode, ModTime: n.modTime}
}

func (f *files) stat(at string) (workspace.FileInfo, error) {
	n, err := f.find(at)
	if err != nil {
		return workspace.FileInfo{}, err
	}
	return info(at, n), nil
}

// below returns the paths of a tree without its root, sorted.
func (f *files) below(at string) []string {
	prefix := strings.TrimSuffix(at, "/") + "/"
	var paths []string
	for p := range f.nodes {
		if p != at && strings.HasPrefix(p, prefix) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

func (f *files) readDir(at string) ([]workspace.FileInfo, error) {
	n, err := f.find(at)
	if err != nil {
		return nil, err
	}
	if !n.mode.IsDir() {
		return nil, syscall.ENOTDIR
	}
	var infos []workspace.FileInfo
	for _, p := range f.below(at) {
		if path.Dir(p) == at {
			infos = append(infos, info(p, f.nodes[p]))
		}
	}
	slices.SortFunc(infos, func(a, b workspace.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

func (f *files) read(at string) (*node, error) {
	n, err := f.find(at)
	if err != nil {
		return nil, err
	}
	if n.mode.IsDir() {
		return nil, syscall.EISDIR
	}
	return n, nil
}

func (f *files) mkdirAll(at string) error {
	for p := at; ; p = path.Dir(p) {
		if n := f.nodes[p]; n != nil {
			if n.mode.IsDir() {
				break
			}
			if p == at {
				return fs.ErrExist
			}
			return syscall.ENOTDIR
		}
	}
	for p := at; f.nodes[p] == nil; p = path.Dir(p) {
		f.nodes[p] = &node{mode: fs.ModeDir | workspace.DefaultDirMode, modTime: time.Now()}
	}
	return nil
}

func (f *files) write(at string, data []byte, opts workspace.WriteOptions) error {
	n := f.nodes[at]
	switch {
	case n != nil && n.mode.IsDir():
		return syscall.EISDIR
	case n != nil && opts.Exclusive:
		return fs.ErrExist
	case n == nil:
		if err := f.mkdirAll(path.Dir(at)); err != nil {
			return notDir(err)
		}
		mode := opts.Mode
		if mode == 0 {
			mode = workspace.DefaultFileMode
		}
		n = &node{mode: mode}
	}
	n.data, n.modTime = data, opts.ModTime
	if n.modTime.IsZero() {
		n.modTime = time.Now()
	}
	f.nodes[at] = n
	return nil
}

// notDir is what a file in the way of a path is.
func notDir(err error) error {
	if err == fs.ErrExist { //nolint:errorlint // from mkdirAll, unwrapped
		return syscall.ENOTDIR
	}
	return err
}

func (f *files) remove(at string) error {
	if workDir == at || at == "/" {
		return fmt.Errorf("the working directory and what is above stay: %w", workspace.ErrInvalid)
	}
	if _, err := f.find(at); err != nil {
		return err
	}
	for _, p := range append(f.below(at), at) {
		delete(f.nodes, p)
	}
	return nil
}

func (f *files) rename(from, to string) error {
	n, err := f.find(from)
	if err != nil {
		return err
	}
	if _, err := f.find(path.Dir(to)); err != nil {
		return err
	}
	target := f.nodes[to]
	switch {
	case from == to:
		return nil
	case from == workDir || from == "/" || strings.HasPrefix(to, from+"/"):
		return syscall.EINVAL
	case target == nil:
	case target.mode.IsDir() && !n.mode.IsDir():
		return syscall.EISDIR
	case !target.mode.IsDir() && n.mode.IsDir():
		return syscall.ENOTDIR
	case target.mode.IsDir() && len(f.below(to)) > 0:
		return syscall.ENOTEMPTY
	}
	for _, p := range append(f.below(from), from) {
		f.nodes[to+strings.TrimPrefix(p, from)] = f.nodes[p]
		delete(f.nodes, p)
	}
	return nil
}
