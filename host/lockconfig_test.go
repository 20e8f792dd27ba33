package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadConfigReadsTheLockFileBesideIt(t *testing.T) {
	dir := t.TempDir()
	file, lockFile := filepath.Join(dir, "berth.yaml"), filepath.Join(dir, LockFileName)
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "cache_dir: ./cache\nallow_writable_plugins: true\nproviders: {state: {}}\n")
	config, err := LoadConfig(file)
	if err != nil || config.CacheDir != filepath.Join(dir, "cache") || !config.AllowWritablePlugins || config.Lock.Path() != lockFile {
		t.Fatalf("%+v, %v", config, err)
	}
	if entry, err := config.Lock.entry("state"); err != nil || entry != nil {
		t.Errorf("without a lock file: %+v, %v", entry, err)
	}
	if _, err := ReadLock(lockFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that was asked for: %v", err)
	}
	// One that comes later counts, and must be right.
	write(lockFile, "format: 1\nplugins: {state: {platforms: {plan9/mips: {version: v1, protocol: 1, sha256: "+strings.Repeat("a", 64)+"}}}}\n")
	if entry, err := config.Lock.entry("state"); err == nil || !strings.Contains(err.Error(), "but not for "+platform) {
		t.Errorf("locked for another platform: %+v, %v", entry, err)
	}
	if entry, err := config.Lock.entry("local"); err != nil || entry != nil {
		t.Errorf("one that it does not name: %+v, %v", entry, err)
	}
	read, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	write(lockFile, "format: 2\n")
	if _, err := config.Lock.entry("local"); err == nil || !strings.Contains(err.Error(), "format") {
		t.Errorf("one that cannot be read: %v", err)
	}
	if _, err := LoadConfig(file); err == nil || !strings.Contains(err.Error(), lockFile) {
		t.Errorf("one that cannot be read: %v", err)
	}
	// One that was read and is gone does not allow anything, whenever it came.
	if err := os.Remove(lockFile); err != nil {
		t.Fatal(err)
	}
	for when, c := range map[string]Config{"at the start": read, "later": config} {
		if _, err := c.Lock.entry("local"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("one that was read %s, and is gone: %v", when, err)
		}
	}
}

func TestLockKeysAreStrict(t *testing.T) {
	for text, key := range map[string]string{
		"allow_writable_plugins: 'true'": "allow_writable_plugins",
		"allow_writable_plugins: 1":      "allow_writable_plugins",
		"cache_dir: [x]":                 "cache_dir",
		"lock: x":                        "lock",
	} {
		_, err := parseConfig("berth.yaml", "/etc", []byte(text), os.LookupEnv)
		var fault *ConfigError
		if !errors.As(err, &fault) || fault.Key != key || fault.Line != 1 {
			t.Errorf("%s: %v", text, err)
		}
	}
}
