package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/berth-dev/berth/host/internal/catalog"
	"github.com/berth-dev/berth/shared/workspace"
)

// maxConfigFile is far more than anyone configures, and keeps a file that is
// none from being parsed.
const maxConfigFile = 1 << 20

// The keys whose values are another's: see [Config.Section].
const (
	sectionGateway     = "gateway"
	sectionAdminSocket = "admin_socket"
)

// source is a configuration file: where in it each key stands.
type source struct {
	file  string
	lines map[string]int // by the path of the key
}

// fault makes an error about a key, at its line where that is known.
func (p Provider) fault(key, reason string) *ConfigError {
	return p.source.fault(key, reason)
}

func (s *source) fault(key, reason string) *ConfigError {
	if s == nil {
		return &ConfigError{Key: key, Reason: reason}
	}
	// What is missing has no line: that of what it is missing in serves.
	for at := key; ; {
		if line := s.lines[at]; line > 0 {
			return &ConfigError{File: s.file, Line: line, Key: key, Reason: reason}
		}
		i := strings.LastIndexByte(at, '.')
		if i < 0 {
			return &ConfigError{File: s.file, Key: key, Reason: reason}
		}
		at = at[:i]
	}
}

// explain places an error of a provider's own configuration, whose keys begin
// below prefix.
func (p Provider) explain(prefix string, err error) error {
	var config *ConfigError
	if !errors.As(err, &config) {
		return err
	}
	key := prefix
	if config.Key != "" {
		key += "." + config.Key
	}
	return p.fault(key, config.Reason)
}

// LoadConfig reads a strict YAML file:
//
//	plugin_dirs: [./bin]
//	providers:
//	  docker: {config: {image: python:3.12-slim}}
//	  build:  {plugin: docker, config: {image: golang:1.26}}
//	  notes:  {plugin: state, config: {store: "file:./notes.db"}}
//
// Keys of a provider are plugin, config, inherit_env, conventional_env,
// start_timeout, drain_limit, idle_timeout and budget; beside providers and plugin_dirs
// there are data_dir, cache_dir, watch_plugins, allow_writable_plugins, and, for others to read, gateway and
// admin_socket: see [Config.Section]. ${VAR} in a string is that variable
// of this process, ${VAR:-x} has a default, $${ is a literal ${. Relative paths, and
// ~, begin at the file's folder. Anchors, aliases and tags are refused. An error is a
// [*ConfigError] unless the file cannot be read, or is one of the lock file
// berth.lock beside it, if there is one: see [Config.Lock].
func LoadConfig(path string) (Config, error) {
	config, err := loadConfig(path, parseConfig)
	if err == nil {
		config.Lock, err = lockBeside(config.Dir)
	}
	return config, err
}

// LoadSections reads no more of a file than data_dir and what [LoadConfig] leaves to
// others, so that no variable that a provider's configuration takes need be set: for a
// program that speaks to another one, which has read all of it.
func LoadSections(path string) (Config, error) { return loadConfig(path, parseSections) }

// parseFunc reads a file's contents; dir is where its relative paths begin.
type parseFunc func(file, dir string, data []byte, lookup func(string) (string, bool)) (Config, error)

func loadConfig(path string, parse parseFunc) (Config, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	file, err := os.Open(abs)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxConfigFile+1))
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	if len(data) > maxConfigFile {
		return Config{}, &ConfigError{File: path, Reason: fmt.Sprintf("is over %d bytes: is it a configuration?", maxConfigFile)}
	}
	return parse(path, filepath.Dir(abs), data, os.LookupEnv)
}

// DefaultConfig makes every plugin that is found a provider of its own name with
// default settings.
func DefaultConfig() (Config, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Config{}, fmt.Errorf("configuration: finding the current directory: %w", err)
	}
	config := Config{Dir: dir, Providers: make(map[string]Provider)}
	for _, bin := range catalog.List(defaultPluginDirs()) {
		config.Providers[bin.Name] = Provider{Plugin: bin.Name}
	}
	return config, nil
}

func parseConfig(file, dir string, data []byte, lookup func(string) (string, bool)) (Config, error) {
	return parseParts(file, dir, data, lookup, false)
}

func parseSections(file, dir string, data []byte, lookup func(string) (string, bool)) (Config, error) {
	return parseParts(file, dir, data, lookup, true)
}

func parseParts(file, dir string, data []byte, lookup func(string) (string, bool), sectionsOnly bool) (Config, error) {
	d := &decoder{source: &source{file: file, lines: make(map[string]int)}, lookup: lookup}
	root, err := d.parse(data)
	if err != nil {
		return Config{}, err
	}
	config := Config{Dir: dir, Providers: make(map[string]Provider)}
	err = d.mapping("", root, func(key, path string, value ast.Node) (err error) {
		if sectionsOnly && (key == "plugin_dirs" || key == "providers") {
			return nil
		}
		switch key {
		case "plugin_dirs":
			config.PluginDirs, err = d.strings(path, value)
			for i, dirname := range config.PluginDirs {
				config.PluginDirs[i] = resolvePath(dir, dirname)
			}
		case "data_dir":
			if config.DataDir, err = d.string(path, value); err == nil {
				config.DataDir = resolvePath(dir, config.DataDir)
			}
		case "cache_dir":
			if config.CacheDir, err = d.string(path, value); err == nil {
				config.CacheDir = resolvePath(dir, config.CacheDir)
			}
		case "allow_writable_plugins":
			boolean, ok := value.(*ast.BoolNode)
			if !ok {
				return d.wrongType(path, value, "true or false")
			}
			config.AllowWritablePlugins = boolean.Value
		case "watch_plugins":
			config.watchSaid = true
			config.WatchPlugins, err = d.boolean(path, value)
		case "providers":
			return d.mapping(path, value, func(name, path string, value ast.Node) (err error) {
				if err := workspace.ValidateName(name); err != nil {
					return d.source.fault(path, "a provider's "+reasonOf(err))
				}
				config.Providers[name], err = d.provider(path, value)
				return err
			})
		case sectionGateway, sectionAdminSocket:
			if config.sections == nil {
				config.sections = make(map[string]Section)
			}
			config.sections[key] = Section{d, dir, path, value}
		default:
			return d.unknown(path, key, "plugin_dirs", "data_dir", "cache_dir", "watch_plugins", "allow_writable_plugins", "providers", sectionGateway, sectionAdminSocket)
		}
		return err
	})
	return config, err
}

func (d *decoder) provider(path string, node ast.Node) (Provider, error) {
	p := Provider{source: d.source}
	err := d.mapping(path, node, func(key, path string, value ast.Node) (err error) {
		switch key {
		case "plugin":
			if p.Plugin, err = d.string(path, value); err != nil {
				return err
			}
			if err := workspace.ValidateName(p.Plugin); err != nil {
				return d.source.fault(path, "a plugin's "+reasonOf(err))
			}
		case "config":
			if isNull(value) {
				return nil
			}
			v, err := d.value(path, value)
			if err != nil {
				return err
			}
			config, ok := v.(map[string]any)
			if !ok {
				return d.wrongType(path, value, "a mapping")
			}
			p.Config = config
		case "inherit_env":
			if p.InheritEnv, err = d.strings(path, value); err != nil {
				return err
			}
			if _, err := execEnvironment(p.InheritEnv); err != nil {
				return d.source.fault(path, err.Error())
			}
		case "conventional_env":
			boolean, err := d.boolean(path, value)
			if err != nil {
				return err
			}
			p.ConventionalEnv = &boolean
		case "start_timeout":
			p.StartTimeout, err = d.duration(path, value)
			return err
		case "drain_limit":
			p.DrainLimit, err = d.duration(path, value)
			return err
		case "idle_timeout":
			p.IdleTimeout, err = d.duration(path, value)
			return err
		case "budget":
			if p.Budget, err = d.budget(path, value); err == nil {
				err = p.checkBudget(path)
			}
			return err
		default:
			return d.unknown(path, key, "plugin", "config", "inherit_env", "conventional_env", "start_timeout", "drain_limit", "idle_timeout", "budget")
		}
		return nil
	})
	return p, err
}

func (d *decoder) boolean(path string, node ast.Node) (bool, error) {
	boolean, ok := node.(*ast.BoolNode)
	if !ok {
		return false, d.wrongType(path, node, "true or false")
	}
	return boolean.Value, nil
}

func (d *decoder) duration(path string, node ast.Node) (time.Duration, error) {
	const want = "a duration above zero with its unit, such as 30s"
	text, ok := scalarString(node)
	if !ok {
		return 0, d.wrongType(path, node, want)
	}
	duration, err := time.ParseDuration(text)
	if err != nil || duration <= 0 {
		return 0, d.source.fault(path, "want "+want)
	}
	return duration, nil
}

// unknown tells the keys that there are, and the one that was meant.
func (d *decoder) unknown(path, key string, known ...string) error {
	return d.source.fault(path, unknownKey(key, known))
}

func unknownKey(key string, known []string) string {
	slices.Sort(known)
	reason := "unknown key"
	if i := slices.IndexFunc(known, func(k string) bool { return alike(key, k) }); i >= 0 {
		reason += fmt.Sprintf("; did you mean %s?", known[i])
	}
	if len(known) == 0 {
		return reason + "; there are none here"
	}
	return reason + "; there are " + strings.Join(known, ", ")
}

// alike reports whether two keys differ in no more than their separators, their
// case, one missing end, or a letter.
func alike(a, b string) bool {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
	}
	a, b = plain(a), plain(b)
	if a == b || len(a) > 2 && strings.HasPrefix(b, a) || len(b) > 2 && strings.HasPrefix(a, b) {
		return true
	}
	if len(a) > len(b) {
		a, b = b, a
	}
	for i := range len(a) {
		if a[i] != b[i] { // one letter replaced, missing, or swapped with the next
			return a[i+1:] == b[i+1:] || a[i:] == b[i+1:] || i+2 <= len(a) && len(a) == len(b) && a[i+2:] == b[i+2:] && a[i] == b[i+1] && a[i+1] == b[i]
		}
	}
	return len(b) == len(a)+1
}

// reasonOf is the text of an error that wraps ErrInvalid, without saying so.
func reasonOf(err error) string {
	return strings.TrimSuffix(err.Error(), ": "+workspace.ErrInvalid.Error())
}
