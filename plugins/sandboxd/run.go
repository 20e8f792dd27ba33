package sandboxd

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

//go:embed probe.sh
var probeScript string

const (
	// runSlack is what a run may take beyond the service's ceiling: it stops a command
	// within five seconds, six where something escapes it, and then has to answer.
	runSlack = 20 * time.Second
	// stopCallTimeout bounds the service's own stop, which is the last resort.
	stopCallTimeout = 5 * time.Second
)

// run is one request to run a program.
type run struct {
	argv    []string
	env     map[string]string
	id      string        // a new one if empty
	timeout time.Duration // for the answer; the service's ceiling if zero
}

// newID is a word that nobody else knows, of the syntax that the service wants.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// post runs a program and returns when it has ended. It is sent once.
func (s *session) post(ctx context.Context, held *access, r run) (*runAnswer, error) {
	const doing = "running a command"
	if r.id == "" {
		r.id = newID()
	}
	timeout := r.timeout
	if timeout == 0 {
		timeout = held.ceiling() + runSlack
	}
	var ran runAnswer
	err := s.client.json(ctx, request{
		doing: doing, method: http.MethodPost, path: s.path("run"), token: held.token, timeout: timeout,
	}, runRequest{Argv: r.argv, Env: r.env, RunID: r.id}, &ran)
	if err == nil && (ran.Stdout == nil || ran.Stderr == nil) {
		err = s.client.nonsense(doing, errors.New("an answer without stdout or stderr"))
	}
	if err != nil {
		return nil, err
	}
	if ran.ExitCode != nil && *ran.ExitCode != 0 && *ran.Stdout == "" && strings.Contains(*ran.Stderr, "argument list too long") {
		return nil, fmt.Errorf("command: its arguments and environment are too long for the workspace's system: %w (%w)", workspace.ErrInvalid, syscall.E2BIG)
	}
	return &ran, nil
}

// ended tells how a run came to its end, for errors.
func (a *runAnswer) ended() string {
	switch {
	case a.TimedOut:
		return "the service's limit of time"
	case a.OutputLimited:
		return "the service's limit of output"
	case a.ExitCode == nil:
		return "no exit code"
	}
	return "exit code " + strconv.Itoa(*a.ExitCode)
}

// stopCall has the service stop a run, whatever it knows of it.
func (s *session) stopCall(ctx context.Context, id string) error {
	held := s.access.Load()
	return s.client.json(ctx, request{
		doing: "stopping a command", method: http.MethodPost, path: s.path("runs", id, "stop"), token: held.token, timeout: stopCallTimeout,
	}, nil, nil)
}

// abandon stops what may go on though nobody waits for it.
func (s *session) abandon(id string) {
	if id == "" {
		return
	}
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.alive), stopCallTimeout)
		defer cancel()
		if err := s.stopCall(ctx, id); err != nil {
			s.provider.logger.Debug("stopping what nobody waits for", "session", s.id, "error", err)
		}
	})
}
