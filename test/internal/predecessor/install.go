package predecessor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	version = "0.2.37"
	// requirement is what is installed, from PyPI. The service takes what its own
	// DockerWorkspace does.
	requirement = "pydantic-ai-backend[server,workspaces]==" + version
)

// envCache names the folder in which it is kept, instead of one in the user's cache.
const envCache = "BERTH_TEST_CACHE"

// Install returns a Python that has the package, and perhaps others, which are named
// as pip takes them. It is installed once and kept.
func Install(ctx context.Context, others ...string) (python string, err error) {
	cache := os.Getenv(envCache)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "berth-test")
	}
	dir := filepath.Join(cache, "pydantic-ai-backend-"+version)
	if len(others) > 0 {
		digest := sha256.Sum256([]byte(strings.Join(others, "\n")))
		dir += "-" + hex.EncodeToString(digest[:6])
	}
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
	packages := append([]string{requirement}, others...)
	pip := []string{filepath.Join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}
	for _, args := range [][]string{{"python3", "-m", "venv", fresh}, append(pip, packages...)} {
		if text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("install %s: %w\n%s", strings.Join(packages, " "), err, text)
		}
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(python); statErr != nil { // nobody else was faster
			return "", err
		}
	}
	return python, nil
}
