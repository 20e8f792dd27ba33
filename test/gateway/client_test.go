//go:build gateway

package gateway_test

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"
)

// ask is what the real client is to do, and on what: see python/client.py.
type ask struct {
	ID      int      `json:"id"`
	Gateway string   `json:"gateway"`
	Name    string   `json:"name,omitempty"`
	Ref     string   `json:"ref,omitempty"`
	Handle  int      `json:"handle,omitempty"` // another backend of the same name
	Do      string   `json:"do"`
	Argv    []string `json:"argv,omitempty"`
	Path    string   `json:"path,omitempty"`
	Text    string   `json:"text,omitempty"`
}

// reply is how that went. Error is the name of an exception.
type reply struct {
	ID       int    `json:"id"`
	Ref      string `json:"ref"`
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Error    string `json:"error"`
	Message  string `json:"message"`
}

// realClient is a Python process with SandboxdWorkspace in it.
type realClient struct {
	stdin io.WriteCloser
	ended chan struct{}

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
}

// newRealClient starts one, which has the token of a gateway.
func newRealClient(t testing.TB, s *server) *realClient {
	t.Helper()
	c := &realClient{ended: make(chan struct{}), waiting: map[int]chan reply{}}
	cmd := pythonCommand(t, s, "client.py")
	said := &output{}
	cmd.Stderr = said
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		c.stdin, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var r reply
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				_, _ = said.Write(lines.Bytes())
				continue
			}
			c.mu.Lock()
			answer := c.waiting[r.ID]
			delete(c.waiting, r.ID)
			c.mu.Unlock()
			answer <- r
		}
		_ = cmd.Wait() // it is told to end, or the test is over
	}()
	t.Cleanup(func() {
		c.stdin.Close()
		<-c.ended
		if t.Failed() {
			t.Logf("the client said:\n%s", said)
		}
	})
	return c
}

// begin has something done, whose outcome can be waited for.
func (c *realClient) begin(t testing.TB, a ask) (outcome func() reply) {
	t.Helper()
	c.mu.Lock()
	c.next++
	a.ID = c.next
	answer := make(chan reply, 1)
	c.waiting[a.ID] = answer
	line, err := json.Marshal(a)
	if err == nil {
		_, err = c.stdin.Write(append(line, '\n'))
	}
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return func() reply {
		t.Helper()
		select {
		case r := <-answer:
			return r
		case <-c.ended:
			t.Fatal("the client has ended")
		case <-time.After(patience):
			t.Fatalf("the client has no answer to %+v", a)
		}
		return reply{}
	}
}

// do has something done that must succeed.
func (c *realClient) do(t testing.TB, a ask) reply {
	t.Helper()
	r := c.begin(t, a)()
	if r.Error != "" {
		t.Fatalf("%+v: %s: %s", a, r.Error, r.Message)
	}
	return r
}
