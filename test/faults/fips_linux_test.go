package faults_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Nothing on the way from a host to a plugin needs cryptography that FIPS 140 does
// not know: neither where a process is told to keep to it, nor where anything else
// would be a panic.
func TestPluginsStartUnderFIPS140(t *testing.T) {
	for _, mode := range []string{"on", "only"} {
		t.Run(mode, func(t *testing.T) {
			host := startHost(t, shortTemp(t), tells, "GODEBUG=fips140="+mode)
			if got := host.line(t); got != "true true <nil>" {
				t.Errorf("FIPS 140 in the host, in the plugin, and the error of a call: %s", got)
			}
		})
	}
}

// So it is with binaries that are built on the certified module.
func TestBinariesOfTheFIPS140Module(t *testing.T) {
	dir, home := t.TempDir(), shortTemp(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "./cmd/berth", "./cmd/berth-provider-state")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "GOFIPS140=v1.0.0", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	if info, err := exec.CommandContext(t.Context(), "go", "version", "-m", filepath.Join(dir, "berth")).Output(); err != nil || !strings.Contains(string(info), "GOFIPS140=v1.0.0") {
		t.Errorf("no such binary: %v: %s", err, info)
	}
	if err := os.WriteFile(filepath.Join(dir, "berth.yaml"), []byte("providers: {state: {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := exec.CommandContext(t.Context(), filepath.Join(dir, "berth"), "open", "state", "--name", "w")
	open.Dir, open.Env = dir, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}
	if out, err := open.CombinedOutput(); err != nil || !strings.Contains(string(out), "state/w") {
		t.Errorf("%v: %s", err, out)
	}
}
