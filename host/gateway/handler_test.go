package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

func TestWhatIsNotThereIsToldInTheWiresWords(t *testing.T) {
	tg := newTestGateway(t)
	for _, path := range []string{
		"/nope", "/sessions/", "/sessions//x", "/sessions/x/nope", "//", "/sessions/../policy", "/./policy", "/openapi.yaml", "/docs", "/schemas/X.json", "/openapi-3.0.json",
	} {
		tg.call(serviceToken, http.MethodGet, path, nil).fails(http.StatusNotFound, "Not Found")
	}
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodDelete, "/sessions", "GET, POST"}, {http.MethodPost, "/healthz", "GET"}, {http.MethodPatch, "/policy", "GET, PUT"}, {"BREW", "/policy", "GET, PUT"},
	} {
		a := tg.call(serviceToken, c.method, c.path, nil)
		a.fails(http.StatusMethodNotAllowed, "Method Not Allowed")
		if allow := a.header.Get("Allow"); allow != c.allow {
			t.Errorf("%s: allow %q, want %q", a.what, allow, c.allow)
		}
	}
	if a := tg.call(serviceToken, http.MethodHead, "/healthz", nil).is(http.StatusMethodNotAllowed); a.header.Get("Allow") != "GET" {
		t.Errorf("allow %q", a.header.Get("Allow"))
	}
}

// register an operation of the test's own.
func (tg *testGateway) register(method, path string, body any, handler func(ctx huma.Context) error) {
	type streamed struct{ Body func(huma.Context) }
	op := huma.Operation{OperationID: method + path, Method: method, Path: path}
	answer := func(context.Context) (*streamed, error) {
		return &streamed{func(ctx huma.Context) {
			if err := handler(ctx); err != nil {
				panic(err)
			}
		}}, nil
	}
	if body == nil {
		register(tg.Gateway, op, byAnyone, failures{}, func(ctx context.Context, _ *struct{}) (*streamed, error) { return answer(ctx) })
		return
	}
	register(tg.Gateway, op, byAnyone, failures{}, func(ctx context.Context, _ *struct{ Body struct{} }) (*streamed, error) { return answer(ctx) })
}

// A request that takes longer than its body may is not ended by the deadline of
// that: the server would take it for a client that has gone.
func TestALongRequestOutlivesTheDeadlineOfItsBody(t *testing.T) {
	tg := newTestGateway(t)
	tg.register(http.MethodPost, "/long", struct{}{}, func(ctx huma.Context) error {
		r, w := humago.Unwrap(ctx)
		// As if the body had been read long ago: a deadline that stood would be over.
		body := r.Body.(*timedBody)
		if !body.ended {
			return errors.New("the body's deadline stands")
		}
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(100 * time.Millisecond):
		}
		w.WriteHeader(http.StatusOK)
		return nil
	})
	tg.call("", http.MethodPost, "/long", `{}`).is(http.StatusOK)
}

// expiring is a connection's control whose read deadlines are over at once.
type expiring struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (w expiring) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w expiring) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		at = time.Now().Add(50 * time.Millisecond)
	}
	return w.control.SetReadDeadline(at)
}

// slowly serves a gateway to clients whose bodies must come within 50 ms.
func slowly(t *testing.T, tg *testGateway) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tg.Handler().ServeHTTP(expiring{w, http.NewResponseController(w)}, r)
	}))
	t.Cleanup(server.Close)
	return server
}

func dial(t *testing.T, server *httptest.Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func TestAClientThatSendsNoBodyIsCutOff(t *testing.T) {
	tg := newTestGateway(t)
	server := slowly(t, tg)
	for _, test := range []struct {
		token  string
		status int
	}{{serviceToken, http.StatusRequestTimeout}, {"wrong", http.StatusUnauthorized}} {
		conn, r := dial(t, server)
		fmt.Fprintf(conn, "POST /sessions HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", tokenHeader, test.token)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.status {
			t.Errorf("%d, want %d: %v", resp.StatusCode, test.status, err)
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !isReset(err) {
			t.Errorf("the connection is still there: %v", err)
		}
	}
}

// Who is refused hears it, whatever is still to come of the body.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	tg := newTestGateway(t)
	conn, r := dial(t, tg.server)
	if err := conn.SetDeadline(time.Now().Add(bodyTimeout - 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /sessions HTTP/1.1\r\nHost: x\r\n%s: wrong\r\nTransfer-Encoding: chunked\r\n\r\n", tokenHeader)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "reset") }

func TestABodyThatBreaksOffIsTheClientsFault(t *testing.T) {
	tg := newTestGateway(t)
	conn, r := dial(t, tg.server)
	fmt.Fprintf(conn, "POST /sessions HTTP/1.1\r\nHost: x\r\n%s: %s\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n", tokenHeader, serviceToken)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "could not be read") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestAHandlerThatPanicsIsAnsweredFor(t *testing.T) {
	tg := newTestGateway(t)
	tg.register(http.MethodGet, "/panic", nil, func(huma.Context) error { panic("s3cret") })
	tg.register(http.MethodGet, "/late", nil, func(ctx huma.Context) error {
		_, w := humago.Unwrap(ctx)
		_, _ = io.WriteString(w, "begun")
		panic("s3cret")
	})
	tg.call("", http.MethodGet, "/panic", nil).fails(http.StatusInternalServerError, "Internal Server Error")
	// What has begun is broken off, so that it is not taken for the whole.
	resp, err := tg.server.Client().Get(tg.server.URL + "/late")
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	if err == nil {
		t.Error("the answer seems whole")
	}
	if metrics := string(tg.call("", http.MethodGet, "/metrics", nil).body); !strings.Contains(metrics, "\nberth_gateway_requests_in_flight 1\n") {
		t.Error("it is counted as in flight for ever")
	}
	tg.call("", http.MethodGet, "/healthz", nil).is(http.StatusOK)
}

func TestAnErrorNobodyForesawStaysInTheLog(t *testing.T) {
	tg := newTestGateway(t)
	register(tg.Gateway, huma.Operation{OperationID: "odd", Method: http.MethodGet, Path: "/odd"}, byAnyone, failures{},
		func(context.Context, *struct{}) (*struct{}, error) { return nil, errors.New("s3cret") })
	tg.call("", http.MethodGet, "/odd", nil).fails(http.StatusInternalServerError, "Internal Server Error")
}

// An answer is written under a deadline, which is taken away after that.
func TestAClientThatTakesNothingIsCutOff(t *testing.T) {
	conn := &stuck{}
	a := &answer{ResponseWriter: conn, control: http.NewResponseController(conn)}
	if n, err := a.Write(make([]byte, 3*writeChunk)); n != writeChunk || !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(a.err, err) {
		t.Errorf("%d, %v", n, err)
	}
	if !conn.deadline.IsZero() || conn.longest < writeTimeout-time.Minute {
		t.Errorf("the deadline is %v, and was %v ahead", conn.deadline, conn.longest)
	}
}

// stuck takes one chunk, and then nothing until the deadline, which is told at once.
type stuck struct {
	taken    int
	deadline time.Time
	longest  time.Duration
}

func (s *stuck) Header() http.Header { return http.Header{} }
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) Write(p []byte) (int, error) {
	if s.taken > 0 && !s.deadline.IsZero() {
		return 0, os.ErrDeadlineExceeded
	}
	s.taken += len(p)
	return len(p), nil
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	if s.deadline = at; !at.IsZero() {
		s.longest = max(s.longest, time.Until(at))
	}
	return nil
}
