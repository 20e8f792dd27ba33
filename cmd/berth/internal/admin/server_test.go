package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
)

// idleHost has a provider that does nothing.
type idleHost struct{ reload func(context.Context) error }

func (idleHost) Providers() []host.ProviderStatus {
	return []host.ProviderStatus{{Name: "a", State: "failed"}}
}
func (h idleHost) Reload(ctx context.Context, _ string) error { return h.reload(ctx) }
func (idleHost) Events(string) ([]host.Event, error)          { return nil, nil }
func (idleHost) Search(string) (host.PluginSearch, error)     { return host.PluginSearch{}, nil }
func (idleHost) LogLevel(string) (hclog.Level, bool, error)   { return hclog.Warn, false, nil }
func (idleHost) SetLogLevel(string, hclog.Level) error        { return nil }

func TestServerTells(t *testing.T) {
	place := serve(t, realHost(t))
	client := connect(t, place)
	if s := client.Serve; s.PID != os.Getpid() || s.Version != "v9" || s.Config != place.Config || s.Address != "here" || time.Since(s.Started) > time.Hour {
		t.Errorf("%+v", s)
	}
	status, err := client.Status(t.Context())
	if err != nil || len(status.Providers) != 1 || status.Providers[0].Name != "notes" || status.Providers[0].State != "stopped" {
		t.Errorf("%+v, %v", status, err)
	}
	level, warning, err := client.SetLogLevel(t.Context(), "notes", "debug")
	if err != nil || level != (LogLevel{"debug", true}) {
		t.Errorf("%+v, %s, %v", level, warning, err)
	}
	story, err := client.Story(t.Context(), "notes")
	if err != nil || story.Serve == nil || story.Provider.Name != "notes" || story.LogLevel != level || len(story.Events) == 0 {
		t.Errorf("%+v, %v", story, err)
	}
	var refused *RefusedError
	for what, ask := range map[string]func() error{
		"a story":  func() error { _, err := client.Story(t.Context(), "x/../y"); return err },
		"a reload": func() error { _, err := client.Reload(t.Context(), []string{"notes", "nobody"}); return err },
		"a level":  func() error { _, _, err := client.SetLogLevel(t.Context(), "nobody", "debug"); return err },
	} {
		if err := ask(); !errors.As(err, &refused) || refused.Status != http.StatusNotFound || !strings.Contains(err.Error(), "unknown provider") {
			t.Errorf("%s of a provider that is none: %v", what, err)
		}
	}
}

// A provider that cannot be swapped is no failure, unless it was named.
func TestReloadKeepsWhatCannotBeSwapped(t *testing.T) {
	unsupported := func(context.Context) error { return errors.Join(errors.New("why"), errors.ErrUnsupported) }
	client := connect(t, serve(t, idleHost{unsupported}))
	for outcome, names := range map[Outcome][]string{Kept: nil, Refused: {"a", "a"}} {
		list, err := client.Reload(t.Context(), names)
		if err != nil || len(list) != 1 || list[0].Outcome != outcome || !strings.Contains(list[0].Reason, "why") {
			t.Errorf("%q: %+v, %v, want %s", names, list, err, outcome)
		}
	}
	if list, err := connect(t, serve(t, realHost(t))).Reload(t.Context(), nil); err != nil || len(list) != 1 || list[0].Outcome != Idle {
		t.Errorf("%+v, %v", list, err)
	}
}

// Who leaves does not have a swap go on for nobody, and neither does the end.
func TestReloadEndsWithItsCallerAndItsServe(t *testing.T) {
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	h := idleHost{func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}}
	expect := func() {
		t.Helper()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("the reload goes on")
		}
	}
	t.Run("caller", func(t *testing.T) {
		client := connect(t, serve(t, h))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-began
			cancel()
		}()
		if _, err := client.Reload(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		expect()
	})
	answered := make(chan error, 1)
	t.Run("serve", func(t *testing.T) {
		client := connect(t, serve(t, h))
		go func() {
			_, err := client.Reload(context.Background(), nil)
			answered <- err
		}()
		<-began
	})
	expect()
	<-answered
}

// What is not quite a call is none.
func TestServerIsStrict(t *testing.T) {
	place := serve(t, realHost(t))
	client := raw(t, place)
	const json = "application/json"
	for what, test := range map[string]struct {
		method, path, kind, body string
		status                   int
		want                     string
	}{
		"no such call":         {"GET", "/v1/nothing", "", "", 404, "berth v9 has no call GET /v1/nothing in its admin interface, v1"},
		"another version":      {"GET", "/v2/status", "", "", 404, "has no call"},
		"another method":       {"DELETE", "/v1/status", "", "", 404, "has no call DELETE"},
		"a query":              {"GET", "/v1/status?x=1", "", "", 400, "a query"},
		"a body":               {"GET", "/v1/status", json, "{}", 400, "a body: this call has none"},
		"no body":              {"POST", "/v1/reload", json, "", 400, "the body: EOF"},
		"no type":              {"POST", "/v1/reload", "", "{}", 400, `the body is of type \"\"`},
		"a form":               {"POST", "/v1/reload", "application/x-www-form-urlencoded", "{}", 400, "want application/json"},
		"an unknown member":    {"POST", "/v1/reload", json, `{"provider":["notes"]}`, 400, `unknown field \"provider\"`},
		"another type":         {"POST", "/v1/reload", json, `{"providers":"notes"}`, 400, "cannot unmarshal string"},
		"two values":           {"POST", "/v1/reload", json, `{} {}`, 400, "something follows its JSON value"},
		"half of one":          {"POST", "/v1/reload", json, `{"providers":`, 400, "unexpected EOF"},
		"too much":             {"POST", "/v1/reload", json, `{"providers":["` + strings.Repeat("x", maxBody) + `"]}`, 400, "too large"},
		"no provider":          {"POST", "/v1/reload", json, `{"providers":[""]}`, 404, `unknown provider \"\"`},
		"no level":             {"PUT", "/v1/providers/notes/log-level", json, `{}`, 400, `log level \"\": want trace`},
		"a level of hclog's":   {"PUT", "/v1/providers/notes/log-level", json, `{"level":"NoLevel"}`, 400, "want trace"},
		"a provider elsewhere": {"GET", "/v1/providers/a%2Fb", "", "", 404, "unknown provider"},
	} {
		t.Run(what, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), test.method, "http://berth"+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if test.kind != "" {
				req.Header.Set("Content-Type", test.kind)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != test.status || !strings.Contains(string(data), test.want) || resp.Header.Get("Content-Type") != json {
				t.Errorf("%d %s, %v, want %d %s", resp.StatusCode, data, err, test.status, test.want)
			}
		})
	}
}

// Connections that say nothing keep nobody out for long.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	place := serve(t, realHost(t))
	for range 2 * maxConnections {
		conn, err := net.Dial("unix", place.Paths[0])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := raw(t, place).Do(must(http.NewRequestWithContext(ctx, http.MethodGet, "http://berth/v1/status", nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A client passes over what a newer serve tells besides, and believes no nonsense.
func TestClientReadsAnswers(t *testing.T) {
	for what, test := range map[string]struct {
		status int
		body   string
		want   string // empty: no error
	}{
		"a newer serve": {200, `{"serve":{"pid":7,"moon":"full"},"providers":[{"name":"a","more":{}}],"more":1}`, ""},
		"no JSON":       {200, `<html>`, "is not what version v1 of the interface has"},
		"a refusal":     {409, `{"error":"not now"}`, "not now"},
		"no reason":     {502, `bad`, "its answer is 502 Bad Gateway"},
		"too much":      {200, `{"serve":{"address":"` + strings.Repeat("x", maxAnswer) + `"}}`, "its answer is over"},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})}
			served := make(chan error, 1)
			go func() { served <- server.Serve(l) }()
			defer func() {
				server.Close()
				<-served
			}()
			client, err := Connect(t.Context(), Place{Paths: []string{path}})
			if err == nil {
				defer client.Close()
			}
			switch {
			case test.want == "" && (err != nil || client.Serve.PID != 7):
				t.Errorf("%+v, %v", client, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// The members of an answer are what programs know it by.
func TestAnswersAreStable(t *testing.T) {
	data, err := json.Marshal(Story{Serve: &About{}, Events: []host.Event{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range []string{`"serve":{"pid":0,"version":"","started":`, `"provider":{"name":`, `"search":{"folders":`, `"log_level":{"level":"","own":false}`, `"events":[]`} {
		if !strings.Contains(string(data), member) {
			t.Errorf("%s lacks %s", data, member)
		}
	}
}
