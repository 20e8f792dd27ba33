package predecessor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	version = "0.2.37"
	// requirement is what is installed, from PyPI. The service takes what its own
	// DockerWorkspace does.
	requirement = "pydantic-ai-backend[server,workspaces]==" + version
)

// envCache names the folder in which it is kept, instead of one in the user's cache.
const envCache = "BERTH_TEST_CACHE"

// Install returns a Python that has the package. It is installed once and kept.
func Install(ctx context.Context) (python string, err error) {
	cache := os.Getenv(envCache)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "berth-test")
	}
	dir := filepath.Join(cache, "pydantic-ai-backend-"+version)
	python = filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(python); err == nil {
		return python, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	// Whole, or not at all: it gets its name when it is complete. What is run of it
	// finds itself wherever it is.
	fresh, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	for _, args := range [][]string{
		{"python3", "-m", "venv", fresh},
		{filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement},
	} {
		if text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("install %s: %w\n%s", requirement, err, text)
		}
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(python); statErr != nil { // nobody else was faster
			return "", err
		}
	}
	return python, nil
}
