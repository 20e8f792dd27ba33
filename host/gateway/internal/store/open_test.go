package store_test

import (
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/host/gateway/internal/store"
)

func TestSQLite_OneProcessHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), "STORE_TEST_OPEN=file:"+path)
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, _ := stdout.Read(buf)
	if got := string(buf[:n]); got != "opened\n" {
		t.Fatalf("the other process: %q", got)
	}
	_, err = store.Open(t.Context(), path)
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), "another process") || !strings.Contains(err.Error(), path) {
		t.Errorf("while another process has it: %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	s := openStore(t, path)
	if _, err := store.Open(t.Context(), path); !errors.Is(err, store.ErrInUse) {
		t.Errorf("twice in one process: %v", err)
	}
	claim(t, s, "a", store.Options{})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode: %v, %v", info, err)
	}
}

// After a gateway that was killed, nobody is sent to another one that there cannot be.
func TestSQLite_ARunEndsWithTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions.db")
	s := openStore(t, path)
	claim(t, s, "a", store.Options{})
	if err := s.Beat(t.Context(), "killed", nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "a", ID: "r", Gateway: "killed"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	if run, err := s.Run(t.Context(), "a", "r"); err != nil || run.Ended.IsZero() || run.Detail != "its gateway is gone" {
		t.Errorf("the run: %+v, %v", run, err)
	}
	if err := s.BeginRun(t.Context(), store.Run{Session: "a", ID: "r", Gateway: "next"}); err != nil {
		t.Errorf("its id again: %v", err)
	}
}

func TestOpen_RefusesWhatIsNoStore(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign.db")
	db, err := sql.Open("sqlite", foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE theirs (x)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"":                            "no URL",
		"mysql://user:secret@host/db": `scheme "mysql"`,
		"postgres://user:secret@[::/": "cannot be read",
		foreign:                       "another program",
		text:                          "SQLite",
	} {
		s, err := store.Open(t.Context(), url)
		if err == nil {
			s.Close()
			t.Errorf("%s was opened", url)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if data, err := os.ReadFile(text); err != nil || !strings.HasPrefix(string(data), "no database") {
		t.Errorf("the file that is none was changed: %v", err)
	}
}
