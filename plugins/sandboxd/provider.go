package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// openingPause lies between two tries while somebody else opens the same session.
const openingPause = 200 * time.Millisecond

// provider is every session that one configured provider opens.
type provider struct {
	config  Config
	client  *client
	opening time.Duration
	logger  hclog.Logger
}

var (
	_ sdk.Provider = (*provider)(nil)
	_ sdk.Lister   = (*provider)(nil)
	_ sdk.Deviator = (*provider)(nil)
)

// Create opens the session of the request's key: its token or name is the session's
// id, so that the same again leads to the same session, whoever opens it.
func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	config, err := sdk.Override(p.config, req.Overrides)
	if err != nil {
		return nil, err
	}
	key := req.Key()
	if name := p.config.SessionName; name != "" {
		if req.Name != "" && req.Name != name {
			return nil, fmt.Errorf("create workspace %s: this provider has the session %s alone (config key session_name): %w", req.Name, name, workspace.ErrInvalid)
		}
		key = name
	}
	if err := p.checkOurs(key); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	opened, err := p.post(ctx, createRequest{SessionID: key, Runtime: config.Runtime, Tenant: config.Tenant, Reuse: true})
	if isStatus(err, http.StatusConflict) { // it is open, on the runtime that it was made with
		opened, err = p.attach(ctx, key, config.Runtime)
	}
	if err != nil {
		return nil, fmt.Errorf("create workspace %s: %w", key, err)
	}
	ws, err := p.open(ctx, key, opened)
	if err != nil && key == req.Token {
		p.discard(ctx, key)
	}
	return ws, err
}

// discard ends what was just made for a token, of which nobody else knows, and could not
// be used: a create that fails leaves nothing (contract L2).
func (p *provider) discard(ctx context.Context, id string) {
	if err := p.purge(context.WithoutCancel(ctx), id, p.client.timeout); err != nil {
		p.logger.Warn("destroying a session that could not be used", "session", id, "error", err)
	}
}

// checkTenant refuses a session that is open for another tenant than this provider's:
// that is all that the service keeps of whoever opened it.
func (p *provider) checkTenant(s sessionInfo) error {
	if p.config.SessionName != "" || s.Tenant == p.config.Tenant {
		return nil
	}
	return fmt.Errorf("session %s: it was not made by this provider: its tenant is %q, this provider's is %q: %w", s.SessionID, short(s.Tenant), p.config.Tenant, workspace.ErrInvalid)
}

// Attach opens a session that is there: one that the service has closed for its
// idleness has its files still, and is opened again.
func (p *provider) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	if err := p.checkOurs(id); err != nil {
		return nil, err
	}
	opened, err := p.attach(ctx, id, p.config.Runtime)
	if err != nil {
		return nil, err
	}
	return p.open(ctx, id, opened)
}

func (p *provider) open(ctx context.Context, id string, opened createAnswer) (sdk.Workspace, error) {
	if err := p.checkTenant(opened.Session); err != nil {
		return nil, err
	}
	s, err := newSession(ctx, p, id, opened)
	if err != nil {
		return nil, fmt.Errorf("open session %s: %w", id, err)
	}
	return s, nil
}

// attach asks for a session that is there. One that has to be opened again is opened
// on this runtime, if the service has it, which would otherwise choose itself; one that
// is open has one.
func (p *provider) attach(ctx context.Context, id, runtime string) (createAnswer, error) {
	asked := createRequest{SessionID: id, Runtime: runtime, Tenant: p.config.Tenant, Attach: true}
	opened, err := p.post(ctx, asked)
	if asked.Runtime != "" && (isStatus(err, http.StatusConflict) || isStatus(err, http.StatusBadRequest)) {
		asked.Runtime = ""
		opened, err = p.post(ctx, asked)
	}
	if err != nil {
		return opened, fmt.Errorf("attach to session %s: %w", id, err)
	}
	return opened, nil
}

// post asks for a session, again while somebody else is opening it.
func (p *provider) post(ctx context.Context, asked createRequest) (createAnswer, error) {
	deadline := time.Now().Add(p.opening)
	for waited := false; ; waited = true {
		var opened createAnswer
		err := p.client.json(ctx, request{
			doing: "opening a session", method: http.MethodPost, path: []string{"sessions"}, session: asked.SessionID,
			timeout: max(time.Until(deadline), p.client.timeout),
		}, asked, &opened)
		switch {
		case err == nil && (opened.Token == "" || opened.Session.SessionID != asked.SessionID):
			return opened, p.client.nonsense("opening a session", fmt.Errorf("session %q with a token of %d characters", short(opened.Session.SessionID), len(opened.Token)))
		case err == nil || !isOpening(err) || time.Now().After(deadline):
			return opened, err
		case !waited:
			sdk.Report(ctx, sdk.Progress{Text: "waiting for another client that opens the session"})
		}
		if err := sleep(ctx, openingPause); err != nil {
			return opened, err
		}
	}
}

// isOpening reports whether another client is opening the session just now. The
// service has no other way to tell it than its words.
func isOpening(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.status == http.StatusConflict && strings.HasPrefix(e.message, "Session is opening")
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Destroy ends a session with its container and its files.
func (p *provider) Destroy(ctx context.Context, id string) error {
	if err := p.checkOurs(id); err != nil {
		return err
	}
	// One that is not open may have its files still: they are purged with a session.
	opened, err := p.attach(ctx, id, p.config.Runtime)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return fmt.Errorf("destroy: %w", err)
	}
	if err := p.checkTenant(opened.Session); err != nil {
		return err
	}
	return p.purge(ctx, id, p.opening)
}

// purge ends a session that is open.
func (p *provider) purge(ctx context.Context, id string, timeout time.Duration) error {
	err := p.client.json(ctx, request{
		doing: "destroying session " + id, method: http.MethodDelete, path: []string{"sessions", id}, query: url.Values{"purge": {"true"}},
		timeout: timeout,
	}, nil, nil)
	if isGone(err) { // somebody else was faster
		return nil
	}
	return err
}

// byService are the ids that the service gives itself: nothing of ours has one.
var byService = regexp.MustCompile(`^s-[0-9a-f]{16}$`)

// checkOurs refuses what this provider cannot have opened. The service keeps no
// labels, so that is all that can be told of an id.
func (p *provider) checkOurs(id string) error {
	switch name := p.config.SessionName; {
	case name != "" && id != name:
		return fmt.Errorf("session %s: this provider has the session %s alone (config key session_name): %w", id, name, workspace.ErrInvalid)
	case name != "" || workspace.IsToken(id):
		return nil
	case workspace.ValidateWorkspaceName(id) != nil || byService.MatchString(id):
		return fmt.Errorf("session %s: it was not made by this provider: its id is no token and no name of a workspace: %w", id, workspace.ErrInvalid)
	}
	return nil
}

// List tells the sessions that are open and this provider's, by their tenant or by the
// configured name.
func (p *provider) List(ctx context.Context, _ workspace.ListOptions) iter.Seq2[sdk.Info, error] {
	return func(yield func(sdk.Info, error) bool) {
		const doing = "listing sessions"
		var list listAnswer
		if err := p.client.json(ctx, request{doing: doing, method: http.MethodGet, path: []string{"sessions"}}, nil, &list); err != nil {
			yield(sdk.Info{}, err)
			return
		}
		if list.Sessions == nil {
			yield(sdk.Info{}, p.client.nonsense(doing, errors.New("no list of sessions")))
			return
		}
		for _, s := range list.Sessions {
			if p.lists(s) && !yield(p.info(s), nil) {
				return
			}
		}
	}
}

func (p *provider) lists(s sessionInfo) bool {
	return p.checkOurs(s.SessionID) == nil && p.checkTenant(s) == nil
}

func (p *provider) info(s sessionInfo) sdk.Info {
	info := sdk.Info{ID: s.SessionID, State: s.State, Created: unixTime(s.CreatedAt), Details: map[string]string{}}
	if !workspace.IsToken(s.SessionID) {
		info.Name = s.SessionID
	}
	if s.Runtime != "" {
		info.Details["runtime"] = s.Runtime
	}
	return info
}

func unixTime(seconds float64) time.Time {
	if !(seconds > 0 && seconds < math.MaxInt32*100.0) {
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9))
}

// Close gives the connections up. Sessions live on.
func (p *provider) Close() error {
	p.client.close()
	return nil
}
