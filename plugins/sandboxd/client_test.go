package sandboxd

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "the-token-of-the-service"

// serve answers every request alike.
func serve(t *testing.T, handler http.HandlerFunc) *client {
	t.Helper()
	server := httptest.NewServer(handler)
	base, err := parseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClient(base, testToken, "", 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close(); server.Close() })
	return c
}

func answering(status int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

const jsonKind = "application/json"

// TestAnswersAreOfAKind: what a caller can decide on is told, whatever comes.
func TestAnswersAreOfAKind(t *testing.T) {
	for name, test := range map[string]struct {
		status     int
		kind, body string
		want       error // nil: an error of no kind
		says       string
	}{
		"no session":       {404, jsonKind, `{"detail":"No such session: x"}`, workspace.ErrUnavailable, "No such session"},
		"gone":             {410, jsonKind, `{"detail":"container is gone"}`, workspace.ErrUnavailable, "410 Gone"},
		"a missing file":   {404, jsonKind, `{"detail":{"error":"FileNotFoundError","message":"no"}}`, fs.ErrNotExist, "no"},
		"another's 404":    {404, "text/html", "<html>not here</html>", workspace.ErrInvalid, "not here"},
		"no such route":    {404, jsonKind, `{"detail":"Not Found"}`, workspace.ErrInvalid, "is service_url right?"},
		"another session":  {404, jsonKind, `{"detail":"No such session: y"}`, workspace.ErrInvalid, "No such session"},
		"no such method":   {405, jsonKind, `{"detail":"Method Not Allowed"}`, workspace.ErrInvalid, "is service_url right?"},
		"too many":         {429, jsonKind, `{"detail":"full"}`, workspace.ErrTransient, "full"},
		"broken":           {500, "text/plain", "Internal Server Error", workspace.ErrTransient, "500"},
		"a proxy's":        {502, "text/html", "<html>\n<b>Bad Gateway</b></html>", workspace.ErrTransient, "<html> <b>Bad Gateway</b></html>"},
		"a wrong token":    {401, jsonKind, `{"detail":"Invalid or missing sandbox token"}`, workspace.ErrInvalid, "token"},
		"invalid":          {422, jsonKind, `{"detail":[{"loc":["body","run_id"],"msg":"Field required","input":{"env":{"A":"secret"}}}]}`, workspace.ErrInvalid, "[body run_id]: Field required"},
		"not implemented":  {501, jsonKind, `{"detail":"no"}`, errors.ErrUnsupported, "no"},
		"an unknown class": {400, jsonKind, `{"detail":{"error":"Strange","message":"hm"}}`, nil, "hm"},
		"no detail":        {400, jsonKind, `[]`, workspace.ErrInvalid, "[]"},
		"a redirect":       {302, "text/html", "", nil, "302 Found"},
		"another service":  {200, "text/html", "<html>hello</html>", nil, "is service_url right?"},
		"no JSON":          {200, jsonKind, "{", nil, "not its protocol"},
		"another shape":    {200, jsonKind, `{"session":[1]}`, nil, "not its protocol"},
		"a list":           {200, jsonKind, `[]`, nil, "not its protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, answering(test.status, test.kind, test.body))
			var opened createAnswer
			err := c.json(t.Context(), request{doing: "testing", method: http.MethodPost, path: []string{"sessions"}, session: "x"}, createRequest{}, &opened)
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.HasPrefix(err.Error(), "testing: ") {
				t.Fatalf("error %v, want one that says %q", err, test.says)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), testToken) {
				t.Errorf("the error repeats what was sent: %v", err)
			}
			for _, kind := range []error{workspace.ErrUnavailable, workspace.ErrTransient, workspace.ErrInvalid, fs.ErrNotExist, errors.ErrUnsupported} {
				if errors.Is(err, kind) != (kind == test.want) { //nolint:errorlint // the table's own values
					t.Errorf("error %v: is it %v: %v", err, kind, errors.Is(err, kind))
				}
			}
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonKind)
		chunk := make([]byte, 1<<20)
		for range maxAnswer/len(chunk) + 2 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	c.timeout = time.Minute
	if _, err := c.do(t.Context(), request{doing: "reading", method: http.MethodGet}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("an answer without end: %v", err)
	}
	c = serve(t, answering(500, "text/plain", strings.Repeat("x", 1<<20)))
	if _, err := c.do(t.Context(), request{doing: "reading", method: http.MethodGet}); err == nil || len(err.Error()) > 2*maxDetail {
		t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
	}
}

func TestNoAnswerIsAFaultThatPasses(t *testing.T) {
	release := make(chan struct{})
	silent := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	silent.timeout = 50 * time.Millisecond
	_, err := silent.do(t.Context(), request{doing: "asking", method: http.MethodGet})
	if !errors.Is(err, workspace.ErrTransient) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a service that is silent: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := silent.do(ctx, request{doing: "asking", method: http.MethodGet}); !errors.Is(err, context.Canceled) || errors.Is(err, workspace.ErrTransient) {
		t.Errorf("a caller who has left: %v", err)
	}
	broken := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := broken.do(t.Context(), request{doing: "asking", method: http.MethodGet}); !errors.Is(err, workspace.ErrTransient) {
		t.Errorf("a connection that breaks: %v", err)
	}
	base, err := parseURL("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := newClient(base, testToken, "", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.do(t.Context(), request{doing: "asking", method: http.MethodGet}); !errors.Is(err, workspace.ErrTransient) || strings.Contains(err.Error(), testToken) {
		t.Errorf("nobody there: %v", err)
	}
}

// TestCertificates: the service's is checked, with the authorities of ca_file.
func TestCertificates(t *testing.T) {
	server := httptest.NewTLSServer(answering(200, jsonKind, `{"sessions":[]}`))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		ca   string
		want error
	}{{"", workspace.ErrInvalid}, {ca, nil}} {
		p, err := New(t.Context(), Config{ServiceURL: server.URL, Token: testToken, CAFile: test.ca}, sdk.Env{Provider: "p"})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range p.(sdk.Lister).List(t.Context(), workspace.ListOptions{}) {
			if !errors.Is(err, test.want) {
				t.Errorf("ca_file %q: %v, want %v", test.ca, err, test.want)
			}
		}
		if err := p.(*provider).Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	good := Config{ServiceURL: "http://localhost:1", Token: testToken}
	for key, change := range map[string]func(*Config){
		"service_url is no URL":   func(c *Config) { c.ServiceURL = "http://us er:pass@x\x7f" },
		"service_url: want http":  func(c *Config) { c.ServiceURL = "localhost:8000" },
		"service_url: no user":    func(c *Config) { c.ServiceURL = "http://user:pass@localhost" },
		"config key token":        func(c *Config) { c.Token = "" },
		"key token: want visible": func(c *Config) { c.Token = "passed\n" },
		"want http://HOST:PORT":   func(c *Config) { c.ServiceURL = "http://localhost:65536" },
		"request_timeout: 1e-09":  func(c *Config) { c.RequestTimeout = 1e-9 },
		"config key session_name": func(c *Config) { c.SessionName = "../etc" },
		"config key tenant":       func(c *Config) { c.Tenant = "a b" },
		"request_timeout":         func(c *Config) { c.RequestTimeout = -1 },
		"opening_timeout":         func(c *Config) { c.OpeningTimeout = 1e18 },
		"ca_file":                 func(c *Config) { c.CAFile = "/no/such/file" },
		"no certificate":          func(c *Config) { c.CAFile = os.Args[0] },
	} {
		config := good
		change(&config)
		if _, err := New(t.Context(), config, sdk.Env{Provider: "p"}); !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "pass") {
			t.Errorf("%s: error %v", key, err)
		}
	}
	long := strings.Repeat("p", 63)
	p, err := New(t.Context(), good, sdk.Env{Provider: long})
	if err != nil {
		t.Fatal(err)
	}
	if tenant := p.(*provider).config.Tenant; !identifier.MatchString(tenant) {
		t.Errorf("the tenant is %q", tenant)
	}
}

// TestAnswerToARunIsChecked: one that is not the service's is never an exit code.
func TestAnswerToARunIsChecked(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":     `{}`,
		"no streams":  `{"exit_code":0}`,
		"no stderr":   `{"stdout":"","exit_code":0}`,
		"other types": `{"stdout":1,"stderr":"","exit_code":0}`,
	} {
		s := &session{client: serve(t, answering(200, jsonKind, body)), id: "x"}
		held := &access{policy: policy{ExecuteTimeout: 1}}
		if ran, err := s.post(t.Context(), held, run{argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "not its protocol") {
			t.Errorf("%s: %+v, %v", name, ran, err)
		}
	}
}
