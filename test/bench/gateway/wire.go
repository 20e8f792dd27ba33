package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxIdle connections to each service are kept: more than are in use at once.
const maxIdle = 64

func newHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxIdle, DisableCompression: true}}
}

// session is one that is called by plain HTTP.
type session struct {
	service   *service
	id, token string
	dir       string // its working directory
}

// call makes a request and returns the answer's body, of which there is one with that
// status.
func (s *service) call(ctx context.Context, token, method, path string, body []byte, want int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Sandbox-Token", token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var data bytes.Buffer
	data.Grow(int(max(resp.ContentLength, 0)) + bytes.MinRead) // without growing
	if _, err := data.ReadFrom(resp.Body); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode != want {
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, data.Bytes())
	}
	return data.Bytes(), nil
}

// open opens a session.
func (s *service) open(ctx context.Context) (*session, error) {
	data, err := s.call(ctx, s.token, http.MethodPost, "/sessions", []byte("{}"), http.StatusOK)
	if err != nil {
		return nil, err
	}
	var opened struct {
		Session struct {
			ID string `json:"session_id"`
		}
		Token string
	}
	if err := json.Unmarshal(data, &opened); err != nil {
		return nil, err
	}
	made := &session{service: s, id: opened.Session.ID, token: opened.Token}
	dir, err := made.run(ctx, "sh", "-c", "pwd -P")
	if err != nil {
		return nil, errors.Join(err, made.purge(context.WithoutCancel(ctx)))
	}
	made.dir = strings.TrimSpace(dir)
	return made, nil
}

// fill makes what the rows find.
func (s *session) fill(ctx context.Context) error {
	_, err := s.run(ctx, "sh", "-c", linksScript)
	return errors.Join(err, s.write(ctx, "small", content()[:small]), s.write(ctx, "large", content()[:large]))
}

func (s *session) purge(ctx context.Context) error {
	_, err := s.service.call(ctx, s.token, http.MethodDelete, "/sessions/"+s.id+"?purge=true", nil, http.StatusNoContent)
	return err
}

// run runs a command that has to exit with 0, and returns its output.
func (s *session) run(ctx context.Context, argv ...string) (stdout string, err error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	body, err := json.Marshal(map[string]any{"argv": argv, "run_id": hex.EncodeToString(id[:])})
	if err != nil {
		return "", err
	}
	data, err := s.service.call(ctx, s.token, http.MethodPost, "/sessions/"+s.id+"/run", body, http.StatusOK)
	if err != nil {
		return "", err
	}
	var ran struct {
		Stdout   string
		ExitCode *int `json:"exit_code"`
	}
	if err := json.Unmarshal(data, &ran); err != nil {
		return "", err
	}
	if ran.ExitCode == nil || *ran.ExitCode != 0 {
		return "", fmt.Errorf("%q has not exited with 0: %s", argv, data)
	}
	return ran.Stdout, nil
}

// file calls a file operation on a name in the working directory.
func (s *session) file(ctx context.Context, operation, name string) ([]byte, error) {
	body, err := json.Marshal(map[string]string{"path": s.dir + "/" + name})
	if err != nil {
		return nil, err
	}
	return s.service.call(ctx, s.token, http.MethodPost, "/sessions/"+s.id+"/files/"+operation, body, http.StatusOK)
}

func (s *session) stat(ctx context.Context, name string, size int) error {
	data, err := s.file(ctx, "stat", name)
	if err != nil {
		return err
	}
	var entry struct{ Size int }
	if err := json.Unmarshal(data, &entry); err != nil {
		return err
	}
	if entry.Size != size {
		return fmt.Errorf("%s has %d bytes, want %d", name, entry.Size, size)
	}
	return nil
}

func (s *session) list(ctx context.Context, name string, entries int) error {
	data, err := s.file(ctx, "list", name)
	if err != nil {
		return err
	}
	var list []struct{ Name string }
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if len(list) != entries {
		return fmt.Errorf("%s has %d entries, want %d", name, len(list), entries)
	}
	return nil
}

func (s *session) write(ctx context.Context, name string, data []byte) error {
	path := "/sessions/" + s.id + "/files/write?path=" + url.QueryEscape(s.dir+"/"+name)
	_, err := s.service.call(ctx, s.token, http.MethodPost, path, data, http.StatusNoContent)
	return err
}

func (s *session) read(ctx context.Context, name string, want []byte) error {
	data, err := s.file(ctx, "read", name)
	if err == nil && !bytes.Equal(data, want) {
		err = fmt.Errorf("%s has other bytes than were written", name)
	}
	return err
}
