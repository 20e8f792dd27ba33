//go:build sandboxd

package sandboxd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
	"github.com/berth-dev/berth/test/sandboxd/sandboxdtest"
)

// TestCommandsTakeOneRequest: whatever a short command writes or reads, it is one round
// trip.
func TestCommandsTakeOneRequest(t *testing.T) {
	b := newBed(t, nil, nil)
	ws, _ := b.open(t)
	for name, cmd := range map[string]workspace.Command{
		"nothing":            {Args: []string{"true"}},
		"text":               {Script: "echo out; echo err >&2; exit 3"},
		"bytes":              {Script: "printf '\\377\\0\\1'"},
		"arguments of bytes": {Args: []string{"echo", "a\xff"}},
		"stdin":              {Args: []string{"cat"}, Stdin: bytes.NewReader(bytes.Repeat([]byte("\xfe"), 100_000))},
		"variables":          {Args: []string{"env"}, Env: map[string]string{"A": "\xff", "a.b": "c"}},
		"killed":             {Script: "kill -9 $$"},
	} {
		// On a loaded machine a command takes so long that it is looked after, which is
		// a request more: it is tried until it is quick.
		eventually(t, name+" takes one request", func() bool {
			before := b.front.asked("POST run")
			if stdin, ok := cmd.Stdin.(*bytes.Reader); ok {
				stdin.Reset(bytes.Repeat([]byte("\xfe"), 100_000))
			}
			if _, err := ws.Run(t.Context(), cmd); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return b.front.asked("POST run") == before+1
		})
	}
}

// TestServiceCeilingIsTold: the service's limit of time is its own, and what was
// written until then is there (contract C5).
func TestServiceCeilingIsTold(t *testing.T) {
	b := newBed(t, sandboxdtest.Settings{"execute_timeout": 4}, nil)
	ws, _ := b.open(t)
	_, err := ws.Run(t.Context(), workspace.Command{Script: "printf 'so far\\377'; echo oh >&2; setsid sleep 1000 & sleep 1000", Timeout: time.Hour})
	var late *workspace.TimeoutError
	if !errors.As(err, &late) {
		t.Fatalf("error %v", err)
	}
	if !late.Ceiling || late.Timeout != 4*time.Second || string(late.Stdout) != "so far\xff" || string(late.Stderr) != "oh\n" || late.Survivors != "" {
		t.Errorf("the error tells %+v: %v", late, err)
	}
	if out := script(t, ws, "ps -e -o args | grep -c '^sleep 1000' || :"); out != "0\n" {
		t.Errorf("%q of its processes are left", out)
	}
	// Its own timeout comes first where it is shorter.
	_, err = ws.Run(t.Context(), workspace.Command{Script: "sleep 1000", Timeout: time.Second})
	if late = nil; !errors.As(err, &late) || late.Ceiling || late.Timeout != time.Second {
		t.Errorf("error %v", err)
	}
}

// TestNothingIsLeftInTheContainer: no file, and no process, of commands that ended in
// whatever way.
func TestNothingIsLeftInTheContainer(t *testing.T) {
	b := newBed(t, sandboxdtest.Settings{"execute_timeout": 20}, nil)
	for _, runtime := range []string{"debian", "busybox"} {
		t.Run(runtime, func(t *testing.T) {
			ws, _ := b.open(t, workspace.WithConfig(map[string]any{"runtime": runtime}))
			for _, cmd := range []workspace.Command{
				{Args: []string{"true"}},
				{Args: []string{"no-such-program"}},
				{Args: []string{"true"}, Dir: "/missing"},
				{Script: "sleep 3 & echo background"},
				{Script: "head -c 5000000 /dev/zero"},
				{Args: []string{"cat"}, Stdin: strings.NewReader(strings.Repeat("x", 3_000_000))},
				{Script: "sleep 1000", Timeout: 100 * time.Millisecond},
				{Script: "sleep 1000", Timeout: time.Second},
				{Script: "yes", OutputLimit: 1000},
			} {
				_, _ = ws.Run(t.Context(), cmd)
			}
			// This command's own folder is there, and the shells that it runs behind.
			eventually(t, "nothing is left", func() bool {
				out := script(t, ws, `ls -a /tmp /dev/shm | grep -c berth-
for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -cE '^(sleep (3|1000)|yes|cat|head) ' || :`)
				return out == "1\n0\n"
			})
			// Not even that of the last one, when nobody gives another.
			b.nothingIsKept(t, runtime)
		})
	}
}

// TestSecretsAreNotTold: no token, and no value of an environment, is in what the
// plugin, the host or the service logs, in errors, or in the service's audit trail
// (contract B7).
func TestSecretsAreNotTold(t *testing.T) {
	b := newBed(t, nil, map[string]any{"env": map[string]string{"SECRET": "a-configured-value"}})
	ws, ref := b.open(t)
	var errs []error
	run := func(cmd workspace.Command) {
		_, err := ws.Run(t.Context(), cmd)
		errs = append(errs, err)
	}
	run(workspace.Command{Args: []string{"sh", "-c", "exit 3"}, Env: map[string]string{"OTHER": "a-passed-value", "odd.name": "an-odd-value"}})
	run(workspace.Command{Script: "sleep 100", Timeout: time.Second, Env: map[string]string{"OTHER": "a-passed-value"}})
	status, body := b.service.Call(t, http.MethodPost, "/sessions", map[string]any{"session_id": ref.ID, "attach": true})
	var opened struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal([]byte(body), &opened); status != http.StatusOK || err != nil || opened.Token == "" {
		t.Fatalf("attach: %d %s", status, body)
	}
	_, events := b.service.Call(t, http.MethodGet, "/sessions/"+ref.ID+"/events", nil)
	if !strings.Contains(events, "exit 3") {
		t.Errorf("the service's audit trail does not show the command: %s", events)
	}
	b.service.Kill(t)
	run(workspace.Command{Args: []string{"true"}})
	b.service.Restart(t)
	_, err := b.newHost(t, map[string]any{"token": "not-the-service's"}).Attach(ref)
	errs = append(errs, err)
	bad, err := b.newHost(t, map[string]any{"token": "not-the-services"}).Attach(ref)
	if err == nil {
		_, err = bad.Stat(t.Context(), ".")
	}
	if !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("a wrong token: %v, want %v", err, workspace.ErrInvalid)
	}
	errs = append(errs, err)
	told := map[string]string{"the log": b.log.String(), "the service's log": b.service.Log(), "an error": errors.Join(errs...).Error(), "the audit trail": events}
	for where, text := range told {
		for _, secret := range []string{b.service.Token, opened.Token, "not-the-services", "a-configured-value", "a-passed-value", "an-odd-value"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells %q", where, secret)
			}
		}
	}
	if told["the log"] == "" {
		t.Error("nothing was logged, so nothing was checked")
	}
}

// TestNoRoom: commands go on where something has filled what is small; with no room
// anywhere they are not started, and the files that fill it can be removed.
func TestNoRoom(t *testing.T) {
	b := newBed(t, sandboxdtest.Settings{"tmpfs_size": "8m"}, nil)
	for _, runtime := range []string{"debian", "busybox"} {
		ws, ref := b.open(t, workspace.WithConfig(map[string]any{"runtime": runtime}))
		for _, full := range []string{"/tmp", "/dev/shm"} {
			res, err := ws.Run(t.Context(), workspace.Command{Script: "head -c 100000000 /dev/zero 2>/dev/null >" + full + "/full"})
			if err != nil || res.ExitCode == 0 {
				t.Errorf("%s: filling %s: %+v, %v", runtime, full, res, err)
			}
			if runtime == "busybox" { // where there is no third place
				break
			}
		}
		if out := script(t, ws, "echo once >>ran; head -c 1000000 /dev/zero | tr '\\0' x"); len(out) != 1_000_000 {
			t.Errorf("%s: with no room: %d bytes", runtime, len(out))
		}
		res, err := ws.Run(t.Context(), workspace.Command{Args: []string{"cat"}, Stdin: strings.NewReader("read")})
		if err != nil || string(res.Stdout) != "read" {
			t.Errorf("%s: with no room: %+v, %v", runtime, res, err)
		}
		if ran := script(t, ws, "cat ran"); ran != "once\n" {
			t.Errorf("%s: it ran %q", runtime, ran)
		}
		again, err := b.newHost(t, nil).Attach(ref)
		if err != nil {
			t.Fatal(err)
		}
		if out := script(t, again, "echo attached"); out != "attached\n" {
			t.Errorf("%s: attached to a session with no room: %q", runtime, out)
		}
		if runtime != "busybox" {
			continue
		}
		script(t, ws, "rm -rf /var/tmp")
		err = nil
		for range 3 { // the start of each removes results that have arrived, and so makes room
			if err == nil {
				_, err = ws.Run(t.Context(), workspace.Command{Script: "head -c 100000000 /dev/zero 2>/dev/null >>/dev/shm/full"})
			}
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "it was not started") {
			t.Errorf("with no room anywhere: %v", err)
		}
		if err := ws.Remove(t.Context(), "/tmp/full"); err != nil {
			t.Fatal(err)
		}
		if out := script(t, ws, "echo room"); out != "room\n" {
			t.Errorf("when there is room again: %q", out)
		}
	}
}

// TestEnvIsNotListed: no value is an argument that ps shows.
func TestEnvIsNotListed(t *testing.T) {
	b := newBed(t, nil, nil)
	ws, _ := b.open(t)
	res, err := ws.Run(t.Context(), workspace.Command{Script: "cat /proc/[0-9]*/cmdline", Env: map[string]string{"S": "not-to-be-seen"}})
	if err != nil || bytes.Contains(res.Stdout, []byte("not-to-be-seen")) || len(res.Stdout) == 0 {
		t.Errorf("the processes are %q, error %v", res.Stdout, err)
	}
}
