package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/containerd/errdefs/pkg/errhttp"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/client"
)

// answerLimit bounds an answer that is read whole. The engine's are a few KiB.
const answerLimit = 1 << 20

// hijacked is a request whose connection has become a stream.
type hijacked struct {
	conn   net.Conn
	reader *bufio.Reader
}

func (h *hijacked) close() { h.conn.Close() }

// closeWrite ends one direction. Unix sockets, TCP, TLS and ssh can.
func (h *hijacked) closeWrite() error {
	half, ok := h.conn.(types.CloseWriter)
	if !ok {
		return fmt.Errorf("ending the input of an exec over %T: %w", h.conn, errors.ErrUnsupported)
	}
	return half.CloseWrite()
}

// hijack makes a request whose connection becomes a stream. Unlike the client's
// own, it ends with the context also when the engine accepts and never answers,
// and tells the engine's reason for refusing.
func (e *Engine) hijack(ctx context.Context, c *client.Client, path string, body any) (_ *hijacked, err error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint.requestURL("/v"+c.ClientVersion()+path).String(), bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")
	conn, err := e.endpoint.dial(ctx)
	if err != nil {
		return nil, err
	}
	closes := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if err == nil && !closes() {
			err = ctx.Err()
		}
		if err != nil {
			closes()
			conn.Close()
		}
	}()
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(conn, frameBuffer)
	resp, err := http.ReadResponse(reader, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return &hijacked{conn: conn, reader: reader}, nil
}

// get makes a request of which the client's own answer says too little.
func (e *Engine) get(ctx context.Context, c *client.Client, path string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.endpoint.requestURL("/v"+c.ClientVersion()+path).String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, to); err != nil {
		return fmt.Errorf("the answer is not the engine's: %w", err)
	}
	return nil
}

// refusal is the engine's reason, with the kind that its status stands for.
func refusal(resp *http.Response) error {
	content, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return err
	}
	var told struct {
		Message string `json:"message"`
	}
	reason := strings.TrimSpace(string(content))
	if json.Unmarshal(content, &told) == nil && told.Message != "" {
		reason = told.Message
	}
	if reason == "" {
		reason = resp.Status
	}
	return fmt.Errorf("%s: %w", reason, errhttp.ToNative(resp.StatusCode))
}
