//go:build unix

package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
)

// Files of more than one piece, and of what is next to a piece, whole.
func TestFiles_Sizes(t *testing.T) {
	const most = 3*pieceSize + 5
	tg := newTestGateway(t, func(c *Config) { c.Policy.MaxReadBytes = most })
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	for _, size := range []int64{0, 1, pieceSize - 1, pieceSize, pieceSize + 1, 2 * pieceSize, most - 1, most} {
		want, err := io.ReadAll(&pattern{size: size})
		if err != nil {
			t.Fatal(err)
		}
		for _, told := range []bool{true, false} {
			var body io.Reader = bytes.NewReader(want)
			if !told {
				body = &pattern{size: size}
			}
			req := tg.request(t.Context(), token, http.MethodPost, "/sessions/s/files/write?path="+url.QueryEscape(dir+"/f"), body)
			tg.send(req).is(http.StatusNoContent)
			if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of %d were written, told before: %v; %v", len(got), size, told, err)
			}
		}
		if got := tg.fileCall(token, "s", "read", dir+"/f").is(http.StatusOK); !bytes.Equal(got.body, want) {
			t.Errorf("%d bytes of %d were read", len(got.body), size)
		}
	}

	// One more than is taken, told before and not, leaves what was there.
	old, err := os.ReadFile(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []io.Reader{strings.NewReader(strings.Repeat("x", most+1)), &pattern{size: most + 1}} {
		req := tg.request(t.Context(), token, http.MethodPost, "/sessions/s/files/write?path="+url.QueryEscape(dir+"/f"), body)
		tg.send(req).handedBack()
	}
	if now, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(now, old) {
		t.Errorf("%d bytes, %v", len(now), err)
	}
	if names, err := os.ReadDir(dir); len(names) != 1 || err != nil {
		t.Errorf("%v, %v", names, err)
	}

	// A long body for what cannot be written is answered all the same.
	long := bytes.Repeat([]byte("x"), most)
	tg.fileCall(token, "s", "write", dir, long...).failsAt(http.StatusBadRequest, "IsADirectoryError")
	tg.fileCall(token, "s", "write", dir+"/f/x", long...).failsAt(http.StatusBadRequest, "NotADirectoryError")
	tg.sh(token, "s", "ln -s loop loop")
	tg.fileCall(token, "s", "write", dir+"/loop", long...).handedBack()
}

// What changes under a read is never taken for something else: cut off, the answer
// breaks off too; and what is added is not of the file that was opened.
func TestFiles_ReadOfWhatChanges(t *testing.T) {
	const size = 64 << 20
	tg := newTestGateway(t, func(c *Config) { c.Policy.MaxReadBytes = 2 * size })
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	for _, change := range []struct {
		name   string
		to     int64
		breaks bool
	}{{"cut", pieceSize, true}, {"grown", size + 1<<20, false}} {
		file := dir + "/" + change.name
		if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		req := tg.request(t.Context(), token, http.MethodPost, "/sessions/s/files/read", strings.NewReader(`{"path":"`+file+`"}`))
		req.Header.Set("Content-Type", jsonType)
		resp, err := tg.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || resp.ContentLength != size {
			t.Errorf("%s: %s, %d bytes", change.name, resp.Status, resp.ContentLength)
		}
		if err := os.Truncate(file, change.to); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if (err != nil) != change.breaks || !change.breaks && n != size {
			t.Errorf("%s: %d bytes, %v", change.name, n, err)
		}
		resp.Body.Close()
	}
	var ends []bool
	eventually(t, "the end of both", func() bool {
		ends = nil
		for _, e := range tg.call(token, http.MethodGet, "/sessions/s/events", nil).object(http.StatusOK)["events"].([]any) {
			if e := e.(map[string]any); e["op"] == "read" {
				ends = append(ends, e["ok"].(bool))
			}
		}
		return len(ends) == 2
	})
	if ends[0] || !ends[1] {
		t.Errorf("the log says %v", ends)
	}
}
