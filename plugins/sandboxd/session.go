package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/shellfs"
	"github.com/berth-dev/berth/shared/workspace"
)

// session is one workspace. All methods may be called concurrently.
type session struct {
	*shellfs.FS

	provider *provider
	client   *client
	id       string
	files    string // identifies them: the incarnation

	// alive ends with Close, and with it all that goes on here.
	alive context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup

	access    atomic.Pointer[access]
	kept      kept
	reopening chan struct{} // holds one value while the session is attached to again
}

// access is how a session is spoken to as long as the service keeps it open.
type access struct {
	token  string
	policy policy
	// runtime is what the session runs on. The service forgets it when it closes it.
	runtime string
	facts   facts
	gone    error // it was replaced: nothing leads to it any more
}

var _ interface {
	sdk.Workspace
	sdk.Commander
	sdk.Announcer
	sdk.Withholder
	sdk.Filesystem
	sdk.RealPather
	sdk.Renamer
	sdk.Linker
	sdk.Chmoder
	sdk.Chtimer
	Close() error
} = (*session)(nil)

func newSession(ctx context.Context, p *provider, id string, opened createAnswer) (*session, error) {
	s := &session{provider: p, client: p.client, id: id, reopening: make(chan struct{}, 1)}
	s.alive, s.end = context.WithCancel(context.Background())
	var err error
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	var held *access
	if held, err = s.accept(ctx, opened); err != nil {
		return nil, err
	}
	s.files = held.facts.incarnation()
	s.access.Store(held)
	s.FS, err = shellfs.NewPaged(ctx, shellfs.PagedConfig{
		Exec: s.exec, WorkingDir: held.facts.dir, MaxOutputBytes: maxRunOutput - len(head),
		Put: s.put, PutBytes: int(min(held.policy.MaxReadBytes, nativeMost)),
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// maxRunOutput is what the service lets a command write, both streams together.
const maxRunOutput = 10 << 20

// ID is the session's id.
func (s *session) ID() string { return s.id }

// Incarnation is that of the session's files: see [facts.incarnation].
func (s *session) Incarnation() string { return s.files }

// WorkingDir is absolute and canonical (contract C2).
func (s *session) WorkingDir() string { return s.facts().dir }

// facts are what the session's container has, as long as the service keeps it open.
func (s *session) facts() facts { return s.access.Load().facts }

// Announce tells the features that no method shows.
func (s *session) Announce() []workspace.Feature {
	features := []workspace.Feature{workspace.FeatureShell}
	if s != nil && s.FS != nil {
		features = append(features, s.FS.Announce()...)
	}
	return features
}

// Withhold tells the features that the session's image cannot keep.
func (s *session) Withhold() []workspace.Feature {
	if s == nil || s.FS == nil {
		return nil
	}
	return s.FS.Withhold()
}

// Close ends what goes on here. The session itself lives on.
func (s *session) Close() error {
	s.end()
	s.tasks.Wait()
	s.sweep(context.Background(), sweepTimeout)
	return nil
}

// accept takes up what the service answered, asks for its policy, and looks at the
// session's container.
func (s *session) accept(ctx context.Context, opened createAnswer) (*access, error) {
	held := &access{token: opened.Token, runtime: opened.Session.Runtime}
	err := s.client.json(ctx, request{doing: "asking for the service's policy", method: http.MethodGet, path: []string{"policy"}}, nil, &held.policy)
	if err == nil && held.policy.ExecuteTimeout <= 0 {
		err = s.client.nonsense("asking for the service's policy", fmt.Errorf("commands may take %v s", held.policy.ExecuteTimeout))
	}
	if err == nil {
		held.facts, err = s.probe(ctx, held)
	}
	return held, err
}

// call does something with the session's token. If the service has closed the session
// meanwhile, and so did nothing, it is attached to again, and the call made once more
// (contract L3).
func (s *session) call(ctx context.Context, do func(*access) error) error {
	held := s.access.Load()
	if held.gone != nil {
		return held.gone
	}
	err := do(held)
	if !lostSession(err) {
		return err
	}
	if held, err = s.reopen(ctx, held); err != nil {
		return err
	}
	return do(held)
}

// reopen attaches to the session again, once for all who found it closed. Another one
// under the same id is not this workspace (contract L8).
func (s *session) reopen(ctx context.Context, old *access) (*access, error) {
	select {
	case s.reopening <- struct{}{}:
		defer func() { <-s.reopening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if held := s.access.Load(); held != old {
		return held, held.gone
	}
	opened, err := s.provider.attach(ctx, s.id, old.runtime)
	if err != nil {
		return nil, err
	}
	held, err := s.accept(ctx, opened)
	if err != nil {
		return nil, err
	}
	if held.facts.incarnation() != s.files {
		held.gone = fmt.Errorf("session %s was replaced by another one with the same id: %w", s.id, workspace.ErrUnavailable)
	}
	s.access.Store(held)
	return held, held.gone
}

// ceiling is the most time that the service gives a command.
func (a *access) ceiling() time.Duration {
	return time.Duration(min(a.policy.ExecuteTimeout, maxSeconds) * float64(time.Second))
}

// path is a route of the session's.
func (s *session) path(segments ...string) []string {
	return append([]string{"sessions", s.id}, segments...)
}

// facts are what a session's container told when it was opened.
type facts struct {
	dir       string // the working directory
	tmp       string // where the folders of commands are
	host      string // the container's host name
	mount     string // identifies the working directory if it is a mount; else empty
	base64    bool
	fractions bool // sleep knows parts of seconds
	nuls      bool // grep sees what is behind a NUL
}

// incarnation identifies the session's files. Where the service keeps them in a folder
// of its own, that folder: containers come and go over it. Elsewhere they are in the
// container, and end with it.
func (f facts) incarnation() string {
	if f.mount != "" {
		return "folder " + f.mount
	}
	return "container " + f.host
}

// probe asks the session's container what it has.
func (s *session) probe(ctx context.Context, held *access) (facts, error) {
	var f facts
	r := run{argv: []string{"sh", "-c", sayHead + probeScript}, timeout: s.client.timeout}
	var ran *runAnswer
	var text string
	for range tries {
		var err error
		if ran, err = s.post(ctx, held, r); err != nil {
			return f, fmt.Errorf("looking at the session's container: %w", err)
		}
		if text, _ = ran.said(); !ran.lost() {
			break
		}
	}
	if ran.lost() {
		return f, fmt.Errorf("looking at the session's container: %w", errLost)
	}
	if ran.ExitCode == nil || *ran.ExitCode != 0 {
		return f, fmt.Errorf("looking at the session's container: its shell ended with %s: %s", ran.ended(), short(*ran.Stderr))
	}
	head, dir, ok := strings.Cut(text, "\ndir ")
	f.dir = strings.TrimSuffix(dir, "\n")
	var lacks []string
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tmp":
			f.tmp = value
		case "host":
			f.host = value
		case "mount":
			f.mount = value
		case "base64":
			f.base64 = true
		case "fractions":
			f.fractions = true
		case "nuls":
			f.nuls = true
		case "lacks":
			lacks = append(lacks, value)
		}
	}
	switch {
	case !ok || !strings.HasPrefix(f.dir, "/"):
		return f, fmt.Errorf("looking at the session's container: its shell says %q", short(text))
	case len(lacks) > 0:
		return f, fmt.Errorf("the session's image lacks %s: %w", strings.Join(lacks, ", "), errors.ErrUnsupported)
	case f.tmp == "":
		return f, fmt.Errorf("the session's container has no /tmp, /dev/shm or /var/tmp that can be written, where commands keep their output: %w", errors.ErrUnsupported)
	}
	return f, nil
}
