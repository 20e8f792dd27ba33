//go:build unix

package engine

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// sshScript puts a program of the name ssh into PATH.
func sshScript(t *testing.T, body string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestAnEngineOverSSH(t *testing.T) {
	f := newFake()
	f.route("/info", says(http.StatusOK, `{}`))
	f.execs(t, echo)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(t.TempDir(), "args")
	sshScript(t, fmt.Sprintf("echo \"$@\" >%s\n%s=%s exec %s\n", said, envSplice, serve(t, f), binary))
	e := openHost(t, "ssh://me@far.example.com")
	if err := e.Query(t.Context(), "asking", info); err != nil {
		t.Fatal(err)
	}
	x := startExec(t, e)
	if _, err := x.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	if err := x.CloseWrite(); err != nil {
		t.Error(err)
	}
	var stdout bytes.Buffer
	if err := x.Copy(&stdout, &stdout); err != nil || stdout.String() != "hello" {
		t.Errorf("an exec: %q, %v", stdout.String(), err)
	}
	args, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(args, []byte("-l me")) || !bytes.Contains(args, []byte("far.example.com")) || !bytes.Contains(args, []byte("docker system dial-stdio")) {
		t.Errorf("ssh was asked for %s", args)
	}
}

func TestAnEngineOverSSHThatCannotBeReached(t *testing.T) {
	sshScript(t, "echo 'Permission denied (publickey).' >&2\nexit 255\n")
	for call, do := range calls {
		t.Run(call, func(t *testing.T) {
			e := openHost(t, "ssh://me@far.example.com")
			err := do(t.Context(), e)
			wantKinds(t, err, "transient")
			wantTexts(t, err, "ssh://me@far.example.com", "Permission denied (publickey)")
		})
	}
	t.Run("no ssh", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		e := openHost(t, "ssh://me@far.example.com")
		err := e.Query(t.Context(), "asking", info)
		wantTexts(t, err, "ssh://me@far.example.com", "executable file not found")
	})
}
