// Package predecessor has the Python package pydantic-ai-backend for tests and
// benchmarks: its clients, and its service sandboxd.
package predecessor

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed app.py
var app []byte

// Sandboxd returns the command that serves sandboxd on a port of this machine alone.
// Settings are the arguments of its SandboxdConfig, as a JSON object; dir is a folder
// for what it writes.
func Sandboxd(python, dir, port string, settings []byte) (*exec.Cmd, error) {
	if err := os.WriteFile(filepath.Join(dir, "berthtestapp.py"), app, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(python, "-m", "uvicorn", "--app-dir", dir, "--host", "127.0.0.1", "--port", port, "--log-level", "warning", "--no-access-log", "berthtestapp:app")
	cmd.Env = append(os.Environ(), "BERTH_TEST_SANDBOXD="+string(settings))
	cmd.Dir = dir
	return cmd, nil
}
