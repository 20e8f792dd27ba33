package host

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// allowedEnv are the variables of this process that every plugin gets: what a
// program needs to find its way, and nothing that is meant for this one alone.
func allowedEnv() []string {
	names := []string{
		"PATH", "HOME", "TMPDIR",
		"LANG", "LANGUAGE", "LC_*", "TZ",
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR",
	}
	names = append(names, tracesEnv()...)
	if runtime.GOOS == "windows" {
		names = append(names, "SystemRoot", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA", "APPDATA")
	}
	return names
}

// tracesEnv are the standard variables that say whether and where a plugin exports
// its traces, as this program may do by the same: then they are one. Not among them
// is OTEL_SERVICE_NAME, which is this program's, and what holds credentials
// (OTEL_EXPORTER_OTLP_HEADERS, and the keys of clients): a plugin gets these by
// inherit_env alone.
func tracesEnv() []string {
	names := []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
		"OTEL_RESOURCE_ATTRIBUTES", "OTEL_BSP_*", "OTEL_SPAN_*", "OTEL_ATTRIBUTE_*", "OTEL_EVENT_*", "OTEL_LINK_*",
	}
	for _, name := range []string{"ENDPOINT", "PROTOCOL", "TIMEOUT", "INSECURE", "COMPRESSION", "CERTIFICATE"} {
		names = append(names, "OTEL_EXPORTER_OTLP_"+name, "OTEL_EXPORTER_OTLP_TRACES_"+name)
	}
	return names
}

// execEnvironment is the complete environment that a plugin is started with.
func execEnvironment(inherit []string) ([]string, error) {
	for _, name := range inherit {
		if strings.ContainsAny(name, "=\x00") {
			// Whoever writes NAME=VALUE here has written a value (contract B7).
			return nil, fmt.Errorf("%q and what follows is no variable's name: want exact names, without values", shorten(name[:strings.IndexAny(name, "=\x00")]))
		}
		if name == "" || strings.Contains(name, "*") {
			return nil, fmt.Errorf("%q is no variable's name: want exact names", shorten(name))
		}
	}
	vars := matching(append(allowedEnv(), inherit...))
	env := make([]string, 0, len(vars))
	for _, name := range sortedKeys(vars) {
		env = append(env, name+"="+vars[name])
	}
	return env, nil
}

// conventionalEnvironment returns those of the variables that a plugin reads by
// convention which are set. A bare * would be the whole environment, and is
// passed over; so is what begins with BERTH_, which is the host's own.
func conventionalEnvironment(patterns []string) map[string]string {
	vars := matching(slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return p == "" || p == "*" }))
	maps.DeleteFunc(vars, func(name, _ string) bool { return strings.HasPrefix(name, "BERTH_") })
	return vars
}

// matching returns the set variables of this process that have one of the names,
// or begin as one that ends with a * does.
func matching(names []string) map[string]string {
	vars := make(map[string]string)
	for _, entry := range os.Environ() {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		if slices.ContainsFunc(names, func(pattern string) bool {
			prefix, isPrefix := strings.CutSuffix(pattern, "*")
			return isPrefix && strings.HasPrefix(name, prefix) || name == pattern
		}) {
			vars[name] = value
		}
	}
	return vars
}

func envVars(vars map[string]string) []*berthv1.EnvVar { return wire.FromEnv(vars) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// userDataDir is where programs of this user keep what they keep: the folder
// berth in it is ours.
func userDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "berth")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), fmt.Sprintf("berth-%d", os.Getuid()))
	}
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "berth")
	case "windows":
		if dir := os.Getenv("LOCALAPPDATA"); filepath.IsAbs(dir) {
			return filepath.Join(dir, "berth")
		}
		return filepath.Join(home, "AppData", "Local", "berth")
	}
	return filepath.Join(home, ".local", "share", "berth")
}

// defaultPluginDirs are searched after those that are configured.
func defaultPluginDirs() []string {
	dirs := filepath.SplitList(os.Getenv("BERTH_PLUGIN_PATH"))
	if own := executableDir(); own != "" {
		dirs = append(dirs, own)
	}
	dirs = append(dirs, filepath.Join(userDataDir(), "plugins"))
	if runtime.GOOS != "windows" {
		dirs = append(dirs, "/usr/lib/berth/plugins")
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
}

// executableDir is the folder of this program, with links resolved: a link in
// /usr/local/bin leads to where its plugins are.
func executableDir() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(exe); err == nil {
		exe = resolved
	}
	return filepath.Dir(exe)
}
