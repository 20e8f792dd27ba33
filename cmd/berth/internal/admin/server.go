package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/workspace"
)

// What a connection may cost.
const (
	// maxConnections is more than people who look after one serve at a time. Others
	// wait.
	maxConnections = 16
	// headerTimeout and bodyTimeout are for what this machine sends in one piece.
	headerTimeout = 5 * time.Second
	bodyTimeout   = 5 * time.Second
	// idleTimeout is between the calls of one command, which come at once.
	idleTimeout = 10 * time.Second
	// maxHeader and maxBody are far more than any call has.
	maxHeader = 8 << 10
	maxBody   = 64 << 10
	// endTimeout is how long calls have to end when the serve does: a reload gives
	// up at once.
	endTimeout = 5 * time.Second
)

// Server answers at an admin socket.
type Server struct {
	host    Host
	about   About
	logger  hclog.Logger
	running *running
}

// NewServer makes a server. What about lacks of this process is filled in.
func NewServer(h Host, about About, logger hclog.Logger) *Server {
	about.PID = os.Getpid()
	if about.Started.IsZero() {
		about.Started = time.Now()
	}
	return &Server{host: h, about: about, logger: logger, running: newRunning()}
}

// Serve answers what comes in at l until ctx ends, and closes it. Calls that are
// under way then end soon.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		BaseContext: func(net.Listener) context.Context { return ctx },
		Handler:     s.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: s.logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(newGuarded(l, s.logger)) }()
	select {
	case err := <-served:
		return fmt.Errorf("admin socket: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if server.Shutdown(end) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin socket: %w", err)
	}
	return nil
}

// guarded is a listener that lets in a few connections at a time, and only those
// of this process's user or of root, who may do all that this process may.
type guarded struct {
	net.Listener
	logger hclog.Logger
	slots  chan struct{}
	ended  chan struct{}
	end    func()
}

func newGuarded(l net.Listener, logger hclog.Logger) *guarded {
	g := &guarded{Listener: l, logger: logger, slots: make(chan struct{}, maxConnections), ended: make(chan struct{})}
	g.end = sync.OnceFunc(func() { close(g.ended) })
	return g
}

// Accept waits for a connection of one who may connect, and for room for it.
func (g *guarded) Accept() (net.Conn, error) {
	select {
	case g.slots <- struct{}{}:
	case <-g.ended:
		return nil, net.ErrClosed
	}
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			<-g.slots
			return nil, err
		}
		if err := checkPeer(conn); err != nil {
			g.logger.Warn("admin socket: a connection was refused", "error", err)
			conn.Close()
			continue
		}
		return &guardedConn{Conn: conn, free: sync.OnceFunc(func() { <-g.slots })}, nil
	}
}

// Close ends a wait for room, too.
func (g *guarded) Close() error {
	g.end()
	return g.Listener.Close()
}

type guardedConn struct {
	net.Conn
	free func()
}

// Close makes room.
func (c *guardedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}

// checkPeer refuses another user's process at the other end.
func checkPeer(conn net.Conn) error {
	err := wire.CheckPeer(conn, os.Geteuid())
	if err != nil && wire.CheckPeer(conn, 0) == nil {
		return nil
	}
	return err
}

// checkServer refuses a serve that is neither this user's nor root's. Root may look
// after anybody's, if it is where its own configuration says.
func checkServer(conn net.Conn, shared bool) error {
	if os.Geteuid() == 0 && !shared {
		return nil
	}
	return checkPeer(conn)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /"+apiVersion+"/status", s.status)
	mux.HandleFunc("GET /"+apiVersion+"/providers/{name}", s.story)
	mux.HandleFunc("POST /"+apiVersion+"/reload", s.reload)
	mux.HandleFunc("PUT /"+apiVersion+"/providers/{name}/log-level", s.setLevel)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, http.StatusNotFound, fmt.Errorf("berth %s has no call %s %s in its admin interface, %s", s.about.Version, r.Method, r.URL.Path, apiVersion))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Reads alone: an answer may take as long as a plugin takes to start.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		if r.URL.RawQuery != "" {
			s.fail(w, http.StatusBadRequest, errors.New("a query: no call has one"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	if err := s.read(w, r, nil); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	status := Status{Serve: s.about, Providers: s.host.Providers()}
	for i, st := range status.Providers {
		status.Providers[i] = s.running.identify(st)
	}
	s.answer(w, status)
}

func (s *Server) story(w http.ResponseWriter, r *http.Request) {
	if err := s.read(w, r, nil); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	story, err := s.tell(r.PathValue("name"))
	if err != nil {
		s.fail(w, http.StatusNotFound, err)
		return
	}
	s.answer(w, story)
}

// tell is what a host knows of one provider.
func (s *Server) tell(name string) (Story, error) {
	events, err := s.host.Events(name)
	if err != nil {
		return Story{}, err
	}
	story := Story{Serve: &s.about, Events: events, Provider: s.statusOf(name)}
	if story.Search, err = s.host.Search(name); err != nil {
		return Story{}, err
	}
	story.LogLevel, err = s.level(name)
	return story, err
}

func (s *Server) statusOf(name string) host.ProviderStatus {
	all := s.host.Providers()
	if i := slices.IndexFunc(all, func(st host.ProviderStatus) bool { return st.Name == name }); i >= 0 {
		return s.running.identify(all[i])
	}
	return host.ProviderStatus{}
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	var req reloadRequest
	if err := s.read(w, r, &req); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	list, err := s.Reload(r.Context(), req.Providers)
	switch {
	case errors.Is(err, workspace.ErrInvalid):
		s.fail(w, http.StatusNotFound, err)
	case err != nil:
		s.fail(w, http.StatusInternalServerError, err)
	default:
		s.answer(w, reloadAnswer{Serve: s.about, Reloads: list})
	}
}

func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) {
	var req levelRequest
	if err := s.read(w, r, &req); err != nil {
		s.fail(w, http.StatusBadRequest, err)
		return
	}
	level := hclog.LevelFromString(req.Level)
	if level == hclog.NoLevel && req.Level != DefaultLevel {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("log level %q: want trace, debug, info, warn, error, off or %s", req.Level, DefaultLevel))
		return
	}
	name := r.PathValue("name")
	if _, err := s.level(name); err != nil {
		s.fail(w, http.StatusNotFound, err)
		return
	}
	var answer levelAnswer
	if err := s.host.SetLogLevel(name, level); err != nil { // it holds here, if not in the plugin
		answer.Warning = err.Error()
	}
	var err error
	if answer.LogLevel, err = s.level(name); err != nil {
		s.fail(w, http.StatusInternalServerError, err)
		return
	}
	s.answer(w, answer)
}

func (s *Server) level(name string) (LogLevel, error) {
	level, own, err := s.host.LogLevel(name)
	return LogLevel{Level: level.String(), Own: own}, err
}

// read reads a body strictly into v: one JSON object with members that v has, and
// nothing else. A nil v is for a call that has none.
func (s *Server) read(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	// Nothing more is read but the end of the connection, by which a caller who has
	// gone is known.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return fmt.Errorf("reading the body: %w", err)
	case v == nil && len(body) > 0:
		return errors.New("a body: this call has none")
	case v == nil:
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != contentType {
		return fmt.Errorf("the body is of type %q: want %s", r.Header.Get("Content-Type"), contentType)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("the body: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body: something follows its JSON value")
	}
	return nil
}

// contentType is that of every body.
const contentType = "application/json"

func (s *Server) answer(w http.ResponseWriter, v any) { s.write(w, http.StatusOK, v) }

func (s *Server) fail(w http.ResponseWriter, status int, err error) {
	s.write(w, status, fault{err.Error()})
}

func (s *Server) write(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.logger.Error("admin socket: an answer cannot be written", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // who does not read it is gone
}
