package sandboxd

import (
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/shared/workspace"
)

// patience is how long a script may take on a loaded machine.
const patience = 2 * time.Minute

// losing is a session whose service runs scripts on this machine, and loses the first
// answers, or only the beginning of them that is dropped. It counts the requests.
func losing(t *testing.T, answers int, dropped string) (s *session, asked *int) {
	t.Helper()
	asked = new(int)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stop") {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		var in runRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		cmd := exec.Command(in.Argv[0], in.Argv[1:]...)
		cmd.Env = []string{"PATH=/usr/bin:/bin"}
		for name, value := range in.Env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		stdout, err := cmd.Output()
		out, errs, code := string(stdout), stderr.String(), cmd.ProcessState.ExitCode()
		if err != nil && code < 0 {
			t.Error(err)
		}
		if *asked++; *asked <= answers {
			out, errs, code = out[min(len(out), len(dropped)):], "", 0
			if dropped == "" {
				out = ""
			}
		}
		body, err := json.Marshal(runAnswer{Stdout: &out, Stderr: &errs, ExitCode: &code})
		if err != nil {
			t.Error(err)
		}
		answering(200, jsonKind, string(body))(w, r)
	})
	c.timeout = patience
	s = &session{client: c, id: "x", provider: &provider{logger: hclog.NewNullLogger()}, alive: t.Context()}
	t.Cleanup(s.tasks.Wait)
	s.access.Store(&access{policy: policy{ExecuteTimeout: patience.Seconds()}, facts: facts{tmp: t.TempDir()}})
	return s, asked
}

// TestLostAnswersOfFileOperations: what can be made twice is, and of anything else what
// it said is asked for, whether all of it was lost or only the beginning.
func TestLostAnswersOfFileOperations(t *testing.T) {
	for _, dropped := range []string{"", head, head + "b"} {
		for lost := range tries {
			for op, again := range map[string]int{
				"rop_stat r/x":             1,
				"rop_put r/x r644 r r":     1,
				"rop_put r/x r644 r1 r":    0,
				"rop_put r/x r644 r r1":    0,
				"rop_remove r/x":           0,
				"rop_more r/x r0 r1 b YQ=": 0,
			} {
				s, asked := losing(t, lost, dropped)
				file := t.TempDir() + "/runs"
				script := "echo once >>" + file + "; printf 'bYQ=='; echo 'no |such\nfile' >&2; exit 3"
				out, exit, stderr, err := s.exec(t.Context(), append([]string{"/bin/sh", "-c", script, "sh", "r100"}, strings.Fields(op)...))
				if err != nil || string(out) != "bYQ==" || exit != 3 || strings.TrimSpace(string(stderr)) != "no |such\nfile" {
					t.Errorf("%s, with %d answers lost: %q, %d, %q, %v", op, lost, out, exit, stderr, err)
				}
				if *asked != lost+1 {
					t.Errorf("%s, with %d answers lost: %d requests", op, lost, *asked)
				}
				text, err := exec.Command("cat", file).Output()
				if runs := strings.Count(string(text), "once"); err != nil || runs != 1+again*lost {
					t.Errorf("%s, with %d answers lost: run %d times, %v", op, lost, runs, err)
				}
				if len(s.kept.take()) != 1-again {
					t.Errorf("%s: what is kept is not known to have arrived", op)
				}
			}
		}
	}
	s, _ := losing(t, 1000, "")
	for _, op := range []string{"rop_stat", "rop_remove"} {
		_, _, _, err := s.exec(t.Context(), []string{"/bin/sh", "-c", "echo b", "sh", "r100", op, "r/x"})
		s.tasks.Wait() // with the stop of what was given up
		if !errors.Is(err, workspace.ErrTransient) {
			t.Errorf("%s, and no answer ever: %v", op, err)
		}
	}
}
