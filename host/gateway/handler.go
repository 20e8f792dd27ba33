package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"
)

// What a client that is slow, or gone, can hold up.
const (
	// bodyTimeout is without progress in reading a body: far more than a network
	// that works ever pauses.
	bodyTimeout = 30 * time.Second
	// writeTimeout is without progress in taking an answer, and long enough for one
	// whose own reader is busy.
	writeTimeout = 2 * time.Minute
	// writeChunk is as much as writeTimeout is for.
	writeChunk = 64 << 10
)

// Handler serves the API. Its deadlines for slow clients need a server whose
// ResponseWriter has them, as that of net/http has.
func (g *Gateway) Handler() http.Handler { return http.HandlerFunc(g.serveHTTP) }

func (g *Gateway) serveHTTP(w http.ResponseWriter, r *http.Request) {
	defer g.answering.begin()()
	began := time.Now()
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	_ = a.control.SetWriteDeadline(time.Time{}) // of the request before, on the same connection
	if r.Body != nil && r.Body != http.NoBody {
		// In a copy: by its own body, unread, the server knows that the connection
		// cannot be used again.
		r = withBody(r, newTimedBody(r.Body, a.control))
	}
	r, span := g.traced(r)
	operation := ""
	g.metrics.inFlight.Inc()
	defer func() {
		fault := recover()
		defer func() { // also when that goes on
			g.metrics.inFlight.Dec()
			g.metrics.answered(operation, a.status, time.Since(began))
			endTrace(span, operation, a.status)
		}()
		if fault != nil {
			g.recovered(a, r, fault)
		}
		_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // for what the server still has to send
	}()
	// The mux would redirect to a path that it thinks is meant, take HEAD for GET,
	// and answer what it has not in text.
	_, pattern := g.mux.Handler(r)
	if method, _, _ := strings.Cut(pattern, " "); method != r.Method || path.Clean(r.URL.Path) != r.URL.Path {
		g.notRouted(a, r)
		return
	}
	operation = pattern
	g.mux.ServeHTTP(a, r)
}

func withBody(r *http.Request, body io.ReadCloser) *http.Request {
	r = r.WithContext(r.Context())
	r.Body = body
	return r
}

// methods are those that operations have.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}

// notRouted answers what no operation is there for.
func (g *Gateway) notRouted(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	if path.Clean(r.URL.Path) == r.URL.Path {
		probe := r.WithContext(r.Context())
		for _, probe.Method = range methods {
			_, pattern := g.mux.Handler(probe)
			if method, _, _ := strings.Cut(pattern, " "); method == probe.Method {
				allowed = append(allowed, method)
			}
		}
	}
	if len(allowed) == 0 {
		writeText(w, http.StatusNotFound)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeText(w, http.StatusMethodNotAllowed)
}

// writeText answers a status in the wire's words.
func writeText(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "{\"detail\":%q}\n", http.StatusText(status))
}

// recovered answers a request whose handler has panicked, if nothing was written
// yet. Huma panics where an answer cannot be written, so it is no news when the
// client has gone; nor must one that was cut off be told of a success then.
func (g *Gateway) recovered(a *answer, r *http.Request, fault any) {
	if err, ok := fault.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(fault)
	}
	if r.Context().Err() != nil || a.err != nil {
		g.logger.Debug("answer not written", "method", r.Method, "path", r.URL.Path, "fault", fault)
		panic(http.ErrAbortHandler)
	}
	g.logger.Error("handler panicked", "method", r.Method, "path", r.URL.Path, "fault", fault, "stack", string(debug.Stack()))
	if a.status != 0 {
		panic(http.ErrAbortHandler) // so that what was written is not taken for the whole
	}
	writeText(a, http.StatusInternalServerError)
}

// answer is a ResponseWriter that ends a client who takes nothing, and knows what
// became of it.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	err     error // the first of a write
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write writes to the client, for as long as that takes something.
func (a *answer) Write(p []byte) (n int, err error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	for {
		taken := 0
		err = a.bounded(func() (err error) {
			taken, err = a.ResponseWriter.Write(p[n:min(len(p), n+writeChunk)])
			return err
		})
		n += taken
		if err != nil || n >= len(p) {
			return n, err
		}
	}
}

// FlushError sends what is buffered, for as long as the client takes something.
func (a *answer) FlushError() error { return a.bounded(a.control.Flush) }

// bounded writes under a deadline. It is taken away after that: HTTP/2 ends a
// stream whose deadline passes, though nothing is being written.
func (a *answer) bounded(write func() error) error {
	_ = a.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder has none
	err := write()
	_ = a.control.SetWriteDeadline(time.Time{})
	if err != nil && a.err == nil {
		a.err = err
	}
	return err
}

// timedBody is a request's body that ends a client who sends nothing. The deadline
// stands from the beginning, for whoever answers without reading: the server reads
// on after that for a while.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	until   time.Time
	ended   bool
}

func newTimedBody(body io.ReadCloser, control *http.ResponseController) *timedBody {
	b := &timedBody{ReadCloser: body, control: control}
	b.extend()
	return b
}

// extend moves the deadline on, not at every small read.
func (b *timedBody) extend() {
	now := time.Now()
	if b.until.Sub(now) < bodyTimeout-time.Second {
		b.until = now.Add(bodyTimeout)
		_ = b.control.SetReadDeadline(b.until)
	}
}

// Read reads from the client.
func (b *timedBody) Read(p []byte) (int, error) {
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	b.extend()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		// It must not stand when the body has been read: the server goes on reading,
		// to notice when the client goes, and would take it for that.
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
