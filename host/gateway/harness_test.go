package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugin/sdk/posix"
	"github.com/berth-dev/berth/shared/workspace"
)

// TestMain makes this binary also what commands of workspaces are started with.
func TestMain(m *testing.M) {
	posix.Main()
	goleak.VerifyTestMain(m)
}

const (
	// serviceToken is that of the tests' gateways.
	serviceToken = "token-of-the-service"
	// soon bounds what must come at once, on a machine that has much else to do.
	soon = time.Minute
)

// folderConfig configures the provider of these tests, whose workspaces are folders.
type folderConfig struct {
	Root string            `json:"root"`
	Env  map[string]string `json:"env,omitempty" berth:"per_workspace"`
	// Refuse has every create fail, with a fault that may pass or one that does not.
	Refuse string `json:"refuse,omitempty" jsonschema:"enum=transient,enum=invalid" berth:"per_workspace"`
}

type folderProvider struct{ folderConfig }

func folderPlugin() sdk.Plugin[folderConfig] {
	return sdk.Plugin[folderConfig]{
		Name: "folder", Version: "test", Workspace: (*posix.Workspace)(nil),
		New: func(_ context.Context, config folderConfig, _ sdk.Env) (sdk.Provider, error) {
			return &folderProvider{config}, nil
		},
	}
}

func (p *folderProvider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	config, err := sdk.Override(p.folderConfig, req.Overrides)
	if err != nil {
		return nil, err
	}
	switch config.Refuse {
	case "transient":
		return nil, errors.Join(errors.New("the folder is busy"), workspace.ErrTransient)
	case "invalid":
		return nil, errors.Join(errors.New("the folder cannot be"), workspace.ErrInvalid)
	}
	if err := os.MkdirAll(filepath.Join(p.Root, req.Key()), 0o755); err != nil {
		return nil, err
	}
	return p.Attach(ctx, req.Key())
}

func (p *folderProvider) Attach(_ context.Context, id string) (sdk.Workspace, error) {
	dir := filepath.Join(p.Root, id)
	ws, err := posix.Open(posix.Config{Dir: dir, ID: id, Env: map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": dir}})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(errors.New("the folder was removed"), workspace.ErrUnavailable)
	}
	return ws, err
}

func (p *folderProvider) Destroy(_ context.Context, id string) error {
	return posix.RemoveTree(filepath.Join(p.Root, id))
}

// Stop leaves the folder: the SDK has ended the commands.
func (p *folderProvider) Stop(context.Context, string) error { return nil }

// testGateway is a gateway over workspaces that are folders, behind a server.
type testGateway struct {
	*Gateway
	t      testing.TB
	server *httptest.Server
	root   string // holds the workspaces
	broken bool   // on purpose: it cannot be shut down in order
}

// newTestGateway makes one with the runtimes folder, the default, and other.
func newTestGateway(t testing.TB, change ...func(*Config)) *testGateway {
	t.Helper()
	tg := &testGateway{t: t, root: t.TempDir()}
	config := Config{
		Host:  newFolderHost(t, tg.root),
		Token: serviceToken, Store: "sqlite:" + filepath.Join(t.TempDir(), "sessions.db"),
		Runtimes: map[string]Runtime{
			"folder": {Description: "A folder"},
			"other":  {Provider: "folder", Config: map[string]any{"env": map[string]any{"RUNTIME": "other"}}},
		},
		DefaultRuntime: "folder", Version: "test",
		Logger: hclog.New(&hclog.LoggerOptions{Output: testLog{t}, Level: hclog.Debug}),
	}
	for _, c := range change {
		c(&config)
	}
	g, err := New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	tg.Gateway = g
	tg.server = httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		g.beginDrain()
		tg.server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil && !tg.broken {
			t.Errorf("shutting the gateway down: %v", err)
		}
	})
	return tg
}

// newFolderHost is a host whose provider folder keeps workspaces in root.
func newFolderHost(t testing.TB, root string) *host.Host {
	t.Helper()
	h, err := host.New(host.Config{DataDir: t.TempDir(), Providers: map[string]host.Provider{
		"folder": {InProcess: folderPlugin(), Config: map[string]any{"root": root, "env": map[string]any{"CONFIGURED": "c"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("closing the host: %v", err)
		}
	})
	return h
}

// testLog is a test's own log.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// answered is an answer, read whole.
type answered struct {
	t      testing.TB
	what   string // for failures
	status int
	header http.Header
	body   []byte
}

// call sends a request. A body is nil, a string that is sent as it is, or a value
// that is sent as JSON.
func (tg *testGateway) call(token, method, path string, body any) *answered {
	tg.t.Helper()
	var reader io.Reader
	contentType := ""
	switch b := body.(type) {
	case nil:
	case string:
		reader, contentType = strings.NewReader(b), jsonType
	case []byte:
		reader, contentType = bytes.NewReader(b), "application/octet-stream"
	default:
		data, err := json.Marshal(b)
		if err != nil {
			tg.t.Fatal(err)
		}
		reader, contentType = bytes.NewReader(data), jsonType
	}
	req, err := http.NewRequestWithContext(tg.t.Context(), method, tg.server.URL+path, reader)
	if err != nil {
		tg.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if token != "" {
		req.Header.Set(tokenHeader, token)
	}
	return tg.send(req)
}

func (tg *testGateway) send(req *http.Request) *answered {
	tg.t.Helper()
	resp, err := tg.server.Client().Do(req)
	if err != nil {
		tg.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		tg.t.Fatalf("%s %s: reading the answer: %v", req.Method, req.URL, err)
	}
	return &answered{tg.t, req.Method + " " + req.URL.RequestURI(), resp.StatusCode, resp.Header, data}
}

// object is the answer, which must have a status and be a JSON object.
func (a *answered) object(status int) map[string]any {
	a.t.Helper()
	a.is(status)
	if got := a.header.Get("Content-Type"); got != jsonType {
		a.t.Errorf("%s: the content type is %q", a.what, got)
	}
	var object map[string]any
	if err := json.Unmarshal(a.body, &object); err != nil {
		a.t.Fatalf("%s: %v: %.200s", a.what, err, a.body)
	}
	return object
}

// is demands a status.
func (a *answered) is(status int) *answered {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: %d, want %d: %.400s", a.what, a.status, status, a.body)
	}
	return a
}

// fails demands an error in words.
func (a *answered) fails(status int, detail string) {
	a.t.Helper()
	if got := a.object(status)["detail"]; got != detail {
		a.t.Errorf("%s: %q\nwant %q", a.what, got, detail)
	}
}

// says demands an error in words that hold others.
func (a *answered) says(status int, words ...string) {
	a.t.Helper()
	detail, _ := a.object(status)["detail"].(string)
	for _, w := range words {
		if !strings.Contains(detail, w) {
			a.t.Errorf("%s: %q\ndoes not say %q", a.what, detail, w)
		}
	}
}

// invalid demands a 422 of one fault.
func (a *answered) invalid(kind string, loc ...any) map[string]any {
	a.t.Helper()
	details, _ := a.object(http.StatusUnprocessableEntity)["detail"].([]any)
	if len(details) != 1 {
		a.t.Fatalf("%s: %.400s, want one fault", a.what, a.body)
	}
	fault := details[0].(map[string]any)
	got, _ := json.Marshal(fault["loc"])
	want, _ := json.Marshal(loc)
	if fault["type"] != kind || !bytes.Equal(got, want) {
		a.t.Errorf("%s: %s at %s\nwant %s at %s", a.what, fault["type"], got, kind, want)
	}
	return fault
}

// open makes a session and returns its own token.
func (tg *testGateway) open(id string) string {
	tg.t.Helper()
	created := tg.call(serviceToken, http.MethodPost, "/sessions", map[string]any{"session_id": id}).object(http.StatusOK)
	return created["token"].(string)
}
