package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

const (
	// answerTimeout is for calls that wait for nothing outside the serve.
	answerTimeout = 10 * time.Second
	// maxAnswer is far more than what a serve with a thousand providers tells.
	maxAnswer = 16 << 20
)

// Client asks a running serve.
type Client struct {
	path string
	http *http.Client
	// Serve is the one that answers.
	Serve About
}

// Connect finds the serve of a place's configuration. A [*NotServingError] says
// that there is none. The client is closed after use.
func Connect(ctx context.Context, place Place) (*Client, error) {
	missed := &NotServingError{Place: place}
	if err := supported(); err != nil {
		missed.Reasons = []error{err}
		return nil, missed
	}
	for _, path := range place.Paths {
		c := &Client{path: path, http: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path, path == place.Shared) },
		}}}
		status, err := c.Status(ctx)
		if err == nil {
			c.Serve = status.Serve
			return c, nil
		}
		c.Close()
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "dial" {
			return nil, err
		}
		missed.Reasons = append(missed.Reasons, absence(path, op.Err))
	}
	return nil, missed
}

// dial connects to a socket whose other end is a process of this user's or of
// root's. Root itself speaks to any, but where anybody may have put the socket.
func dial(ctx context.Context, path string, shared bool) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkServer(conn, shared); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// absence says why nobody answers at a path.
func absence(path string, err error) error {
	switch pid, held := holder(path); {
	case held && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: the socket is gone, though berth serve with pid %d runs, which had it: start that again", path, pid)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no socket at %s: %w", path, fs.ErrNotExist)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("the serve that had %s has ended: %w", path, syscall.ECONNREFUSED)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Path is where the serve was found.
func (c *Client) Path() string { return c.path }

// Close ends the connection.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks how the providers are.
func (c *Client) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var status Status
	return status, c.call(ctx, http.MethodGet, "/status", nil, &status)
}

// Story asks for what is known of one provider.
func (c *Client) Story(ctx context.Context, provider string) (Story, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var story Story
	return story, c.call(ctx, http.MethodGet, "/providers/"+url.PathEscape(provider), nil, &story)
}

// Reload has the plugins of the named providers swapped, or without names of all:
// see [Server.Reload]. It waits for as long as their starts may take.
func (c *Client) Reload(ctx context.Context, names []string) ([]Reloaded, error) {
	var answer reloadAnswer
	err := c.call(ctx, http.MethodPost, "/reload", reloadRequest{Providers: names}, &answer)
	return answer.Reloads, err
}

// SetLogLevel has the records of a provider logged from a level on, and tells what
// holds now, with a warning if the plugin itself does not know it.
func (c *Client) SetLogLevel(ctx context.Context, provider, level string) (now LogLevel, warning string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var answer levelAnswer
	err = c.call(ctx, http.MethodPut, "/providers/"+url.PathEscape(provider)+"/log-level", levelRequest{level}, &answer)
	return answer.LogLevel, answer.Warning, err
}

// RefusedError is what a serve says to a call that it does not carry out.
type RefusedError struct {
	Status int
	Reason string
}

func (e *RefusedError) Error() string { return e.Reason }

// call makes a call. What a newer serve tells beside what is known here is passed
// over.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	fail := func(err error) error {
		var wrapped *url.Error
		if errors.As(err, &wrapped) { // whose URL is not how anyone asks
			err = wrapped.Err
		}
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("berth serve at %s does not answer: %w", c.path, err)
		}
		return fmt.Errorf("asking berth serve at %s: %w", c.path, err)
	}
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fail(err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://berth/"+apiVersion+path, body)
	if err != nil {
		return fail(err)
	}
	if in != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fail(err)
	case len(data) > maxAnswer:
		return fail(fmt.Errorf("its answer is over %d bytes", maxAnswer))
	}
	if resp.StatusCode != http.StatusOK {
		var told fault
		if json.Unmarshal(data, &told) != nil || told.Error == "" {
			return fail(fmt.Errorf("its answer is %s", resp.Status))
		}
		return &RefusedError{Status: resp.StatusCode, Reason: told.Error}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fail(fmt.Errorf("its answer is not what version %s of the interface has: %w", apiVersion, err))
	}
	return nil
}
