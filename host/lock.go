package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/host/internal/copies"
	"github.com/berth-dev/berth/host/internal/lock"
	"github.com/berth-dev/berth/shared/digest"
)

// LockFileName is what the lock file beside a configuration is called.
const LockFileName = lock.FileName

// Lock is a lock file: it says by their digests which bytes of each plugin may run.
// A plugin that it does not name runs as it is found. The file is read at each start
// of a plugin, so that a change takes effect with [Host.Reload]; [Host.LockPlugins]
// and [Host.RollbackPlugin] change it.
type Lock struct {
	path string
	// optional is a file that was not there: if it comes, it counts, and has to stay.
	optional bool
	seen     atomic.Bool
}

// ReadLock reads a lock file, for [Config.Lock]. From then on it has to be there,
// and to be valid, for any plugin to start.
func ReadLock(path string) (*Lock, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("lock file %s: %w", path, err)
	}
	if _, err := lock.Read(abs); err != nil {
		return nil, err
	}
	return &Lock{path: abs}, nil
}

// lockBeside is the lock file of a configuration in dir, which need not be there.
func lockBeside(dir string) (*Lock, error) {
	path := filepath.Join(dir, LockFileName)
	l, err := ReadLock(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{path: path, optional: true}, nil
	}
	return l, err
}

// Path is the file's.
func (l *Lock) Path() string { return l.path }

// platform is this machine's in lock files.
const platform = runtime.GOOS + "/" + runtime.GOARCH

func (l *Lock) read() (lock.File, error) {
	f, err := lock.Read(l.path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		l.seen.Store(true) // also one that cannot be read
	case l.optional && !l.seen.Load():
		return lock.File{}, nil
	}
	return f, err
}

// entry tells what of a plugin may run here; none says that anything may.
func (l *Lock) entry(plugin string) (entry *lock.Entry, err error) {
	if l == nil {
		return nil, nil
	}
	f, err := l.read()
	if err != nil {
		return nil, err
	}
	locked, ok := f.Plugins[plugin]
	if !ok {
		return nil, nil
	}
	e, ok := locked.Platforms[platform]
	if !ok {
		return nil, fmt.Errorf("%s locks it for %s, but not for %s: berth lock %s adds this platform",
			l.path, strings.Join(slices.Sorted(maps.Keys(locked.Platforms)), ", "), platform, plugin)
	}
	return &e, nil
}

// pins finds plugins and has those that are locked run what the lock file says.
type pins struct {
	lock          *Lock
	dirs          []string
	allowWritable bool
	digests       catalog.Digests
	store         *copies.Store
	storeErr      error // why there is none
	storeDir      string
}

// newPins keeps copies in a folder of cacheDir, or of the user's cache.
func newPins(l *Lock, dirs []string, allowWritable bool, cacheDir string) *pins {
	p := &pins{lock: l, dirs: dirs, allowWritable: allowWritable}
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			p.storeErr = fmt.Errorf("folder for copies of plugins: %w: set it, or cache_dir in the configuration", err)
			return p
		}
		cacheDir = filepath.Join(user, "berth")
	}
	p.storeDir = filepath.Join(cacheDir, "plugins")
	p.store = copies.New(p.storeDir)
	return p
}

// find returns what a start of a plugin is to execute. It is asked at each.
func (p *pins) find(plugin string) (catalog.Binary, error) {
	entry, err := p.lock.entry(plugin)
	if err != nil {
		return catalog.Binary{}, fmt.Errorf("plugin %s: %w", plugin, err)
	}
	found, err := catalog.Find(plugin, p.dirs)
	if entry != nil && entry.RolledBackFrom != "" {
		if err != nil { // which does not matter
			found = catalog.At(plugin, p.copyPath(plugin, entry.Release))
		}
		return p.pinned(found, *entry, false), nil
	}
	if err == nil {
		err = p.trust(found)
	}
	if err != nil || entry == nil {
		return found, err
	}
	standing, err := p.standing(found, slices.Collect(maps.Keys(entry.Companions)))
	if err != nil {
		return catalog.Binary{}, err
	}
	if what := differences(found, entry.Release, standing); len(what) > 0 {
		return catalog.Binary{}, fmt.Errorf("plugin %s: %s, which is not what %s allows: \"berth lock %s\" allows what is there now, \"berth plugin rollback %s\" runs what was locked, from its copy",
			plugin, what[0], p.lock.path, plugin, plugin)
	}
	return p.pinned(found, *entry, true), nil
}

// findOrCopy is find for who only looks: where that is refused, it is the copy of
// the locked release, if one is kept.
func (p *pins) findOrCopy(plugin string) (catalog.Binary, error) {
	found, err := p.find(plugin)
	if err == nil || p.lock == nil {
		return found, err
	}
	entry, lockErr := p.lock.entry(plugin)
	if lockErr != nil || entry == nil {
		return found, err
	}
	locked := p.pinned(catalog.At(plugin, p.copyPath(plugin, entry.Release)), *entry, false)
	_, release, openErr := locked.Open()
	if openErr != nil {
		return found, err // which says what to do
	}
	release()
	return locked, nil
}

// trust refuses a binary that others may change.
func (p *pins) trust(found catalog.Binary) error {
	if p.allowWritable {
		return nil
	}
	err := catalog.CheckTrust(found.Path)
	switch {
	case errors.As(err, new(*catalog.UntrustedError)):
		return fmt.Errorf("plugin %s: %w, or set allow_writable_plugins: true", found.Name, err)
	case err != nil:
		return fmt.Errorf("plugin %s: %w", found.Name, err)
	}
	return nil
}

// standing tells what stands in a plugin's folder, of itself and of those
// companions that are there.
func (p *pins) standing(found catalog.Binary, companions []string) (lock.Release, error) {
	r := lock.Release{}
	digest, err := p.hexDigest(found.Path)
	if err != nil {
		return r, fmt.Errorf("plugin %s: %w", found.Name, err)
	}
	r.SHA256 = digest
	for _, name := range companions {
		digest, err := p.hexDigest(beside(found.Path, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return r, fmt.Errorf("plugin %s: companion %s: %w", found.Name, name, err)
		}
		if r.Companions == nil {
			r.Companions = make(map[string]string)
		}
		r.Companions[name] = digest
	}
	return r, nil
}

// beside is where a plugin finds a companion: its own program's folder, whatever
// link leads there.
func beside(binary, name string) string {
	if resolved, err := filepath.EvalSymlinks(binary); err == nil {
		binary = resolved
	}
	return filepath.Join(filepath.Dir(binary), name)
}

func (p *pins) hexDigest(path string) (string, error) {
	sum, err := p.digests.Of(path)
	return strings.TrimPrefix(sum, digest.Prefix), err
}

// differences says how what stands in a plugin's folder differs from what is locked.
func differences(found catalog.Binary, locked, standing lock.Release) []string {
	var list []string
	if standing.SHA256 != locked.SHA256 {
		list = append(list, fmt.Sprintf("%s has the digest sha256:%s, and locked is sha256:%s (version %s)", found.Path, standing.SHA256, locked.SHA256, locked.Version))
	}
	for _, name := range slices.Sorted(maps.Keys(locked.Companions)) {
		want, have := locked.Companions[name], standing.Companions[name]
		switch {
		case have == "":
			list = append(list, fmt.Sprintf("its companion %s is missing in %s", name, filepath.Dir(beside(found.Path, name))))
		case have != want:
			list = append(list, fmt.Sprintf("its companion %s has the digest sha256:%s, and locked is sha256:%s", beside(found.Path, name), have, want))
		}
	}
	return list
}

// appeared tells which companions lie there that did not when their plugin was
// locked. It runs without them.
func (p *pins) appeared(found catalog.Binary, missing []string) []string {
	var list []string
	for _, name := range missing {
		path := beside(found.Path, name)
		if _, err := os.Lstat(path); err == nil {
			list = append(list, fmt.Sprintf("its companion %s was not there when it was locked, and is not used", path))
		}
	}
	return list
}

// content is a release as copies keep it.
func content(plugin string, r lock.Release) copies.Content {
	c := copies.Content{Binary: catalog.BinaryName(plugin), Files: map[string]string{}}
	maps.Copy(c.Files, r.Companions)
	c.Files[c.Binary] = r.SHA256
	return c
}

func (p *pins) copyPath(plugin string, r lock.Release) string {
	if p.store == nil {
		return catalog.BinaryName(plugin)
	}
	return p.store.Path(content(plugin, r))
}

// pinned has a binary run the copy of a release, which may be made of what stands
// where it was found.
func (p *pins) pinned(found catalog.Binary, entry lock.Entry, mayCopy bool) catalog.Binary {
	c := content(found.Name, entry.Release)
	return found.Pinned(catalog.Pin{
		Digest:         digest.Prefix + entry.SHA256,
		Content:        c.Folder(),
		RolledBackFrom: prefixed(entry.RolledBackFrom),
		Open: func() (string, func(), error) {
			kept, err := p.hold(found, entry.Release, mayCopy)
			if err != nil {
				return "", nil, err
			}
			return kept.Path, kept.Release, nil
		},
	})
}

func prefixed(hex string) string {
	if hex == "" {
		return ""
	}
	return digest.Prefix + hex
}

// hold returns the copy of a release, which is made of what stands where the plugin
// was found, if it may be.
func (p *pins) hold(found catalog.Binary, r lock.Release, mayCopy bool) (*copies.Copy, error) {
	if p.store == nil {
		return nil, p.storeErr
	}
	if err := p.store.Register(p.lock.path); err != nil {
		return nil, err
	}
	c := content(found.Name, r)
	var source func(string) string
	if mayCopy {
		source = func(name string) string {
			if name == c.Binary {
				return found.Path
			}
			return beside(found.Path, name)
		}
	}
	kept, err := p.store.Hold(c, source)
	switch {
	case errors.Is(err, copies.ErrNotKept):
		return nil, fmt.Errorf("plugin %s: version %s (sha256:%s): %w in %s: install it, and \"berth lock %s\"", found.Name, r.Version, r.SHA256, err, p.storeDir, found.Name)
	case err != nil:
		return nil, fmt.Errorf("plugin %s: %w", found.Name, err)
	}
	if kept.Made {
		_ = p.prune() // what is too much now is so at the next change, too
	}
	return kept, nil
}

// prune removes the copies that no lock file needs.
func (p *pins) prune() error {
	return p.store.Prune(func(lockFile string) ([]copies.Content, error) {
		f, err := lock.Read(lockFile)
		if err != nil {
			return nil, err
		}
		var needed []copies.Content
		for name, plugin := range f.Plugins {
			entry, ok := plugin.Platforms[platform]
			if !ok {
				continue
			}
			for _, r := range entry.Releases() {
				needed = append(needed, content(name, r))
			}
		}
		return needed, nil
	})
}
