//go:build unix

package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// request makes one to be sent by the test itself.
func (tg *testGateway) request(ctx context.Context, token, method, path string, body io.Reader) *http.Request {
	tg.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, tg.server.URL+path, body)
	if err != nil {
		tg.t.Fatal(err)
	}
	req.Header.Set(tokenHeader, token)
	return req
}

// content asks for, or sends, a file's content.
func (tg *testGateway) content(token, method, query string, body io.Reader, header ...string) *answered {
	tg.t.Helper()
	req := tg.request(tg.t.Context(), token, method, "/sessions/s/files/content?"+query, body)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return tg.send(req)
}

func TestContent_Download(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	data := []byte(strings.Repeat("0123456789", 50_000))
	if err := os.WriteFile(dir+"/f", data, 0o600); err != nil {
		t.Fatal(err)
	}
	get := func(header ...string) *answered {
		t.Helper()
		return tg.content(token, http.MethodGet, "path=f", nil, header...)
	}
	whole := get().is(http.StatusOK)
	tag, modified := whole.header.Get("ETag"), whole.header.Get("Last-Modified")
	if !bytes.Equal(whole.body, data) || tag == "" || modified == "" || whole.header.Get("Content-Type") != bytesType || whole.header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("%d bytes, %v", len(whole.body), whole.header)
	}
	head := tg.content(token, http.MethodHead, "path="+url.QueryEscape(dir+"/f"), nil).is(http.StatusOK)
	if head.header.Get("Content-Length") != strconv.Itoa(len(data)) || head.header.Get("ETag") != tag || len(head.body) != 0 {
		t.Errorf("%v", head.header)
	}
	for spec, want := range map[string]string{
		"bytes=0-9": "0123456789", "bytes=499995-": "56789", "bytes=-3": "789", "bytes=499999-600000": "9",
	} {
		part := get("Range", spec).is(http.StatusPartialContent)
		if string(part.body) != want || !strings.HasSuffix(part.header.Get("Content-Range"), "/500000") {
			t.Errorf("%s: %q %v", spec, part.body, part.header)
		}
	}
	parts := get("Range", "bytes=1-2,100005-100008").is(http.StatusPartialContent)
	_, params, err := mime.ParseMediaType(parts.header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	reader := multipart.NewReader(bytes.NewReader(parts.body), params["boundary"])
	for _, want := range []string{"12", "5678"} {
		part, err := reader.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(part); string(got) != want || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	get("Range", "bytes=500000-").is(http.StatusRequestedRangeNotSatisfiable)
	get("If-None-Match", tag).is(http.StatusNotModified)
	get("If-None-Match", `"another"`).is(http.StatusOK)
	get("If-Modified-Since", modified).is(http.StatusNotModified)
	get("If-Match", `"another"`).is(http.StatusPreconditionFailed)
	if part := get("Range", "bytes=0-1", "If-Range", tag).is(http.StatusPartialContent); string(part.body) != "01" {
		t.Errorf("%q", part.body)
	}
	get("Range", "bytes=0-1", "If-Range", `"another"`).is(http.StatusOK)

	if err := os.WriteFile(dir+"/empty", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tg.content(token, http.MethodGet, "path=empty", nil).is(http.StatusOK); len(got.body) != 0 || got.header.Get("Content-Length") != "0" {
		t.Errorf("%q %v", got.body, got.header)
	}
	name := "n\xff \n+&"
	if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"path=" + url.QueryEscape(name), "path_b64=" + base64.RawURLEncoding.EncodeToString([]byte(name))} {
		if got := tg.content(token, http.MethodGet, query, nil).is(http.StatusOK); string(got.body) != "x" {
			t.Errorf("%s: %q", query, got.body)
		}
	}
}

func TestEntityTag(t *testing.T) {
	second := time.Now().Add(time.Minute).Truncate(time.Second)
	for _, test := range []struct {
		modified time.Time
		told     bool
	}{{time.Time{}, false}, {second.Add(1), true}, {second, false}, {second.Add(-time.Hour), true}} {
		info := workspace.FileInfo{Size: 1, ModTime: test.modified}
		if tag := entityTag(info); tag != "" != test.told {
			t.Errorf("%v: %q", test.modified, tag)
		}
	}
	tags := make(map[string]bool)
	for _, info := range []workspace.FileInfo{{Size: 1, ModTime: second.Add(1)}, {Size: 2, ModTime: second.Add(1)}, {Size: 1, ModTime: second.Add(2)}} {
		tags[entityTag(info)] = true
	}
	if len(tags) != 3 {
		t.Errorf("%v", tags)
	}
}

func TestContent_Refused(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	tg.sh(token, "s", "mkfifo ff; mkdir d; touch f; ln -s nope dangling; ln -s loop loop")
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		at := func(query string, header ...string) *answered {
			t.Helper()
			return tg.content(token, method, query, strings.NewReader("x"), header...)
		}
		at("").invalid("missing", "query", "path")
		at("path=f&path_b64=Zg").invalid("value_error", "query", "path_b64")
		at("path_b64=%21").invalid("value_error", "query", "path_b64")
		at("path=d").failsAt(http.StatusBadRequest, "IsADirectoryError")
		at("path=f/x").failsAt(http.StatusBadRequest, "NotADirectoryError")
		at("path=ff").failsAt(http.StatusBadRequest, "ValueError")
		at("path=a%00b").failsAt(http.StatusBadRequest, "ValueError")
		at("path=loop").failsAt(http.StatusBadRequest, "OSError")
		at("path="+strings.Repeat("n", 300)).failsAt(http.StatusBadRequest, "OSError")
	}
	for _, path := range []string{"nope", "dangling"} {
		tg.content(token, http.MethodGet, "path="+path, nil).failsAt(http.StatusNotFound, "FileNotFoundError")
		tg.content(token, http.MethodGet, "path="+path, nil, "Range", "bytes=0-1").failsAt(http.StatusNotFound, "FileNotFoundError")
		tg.content(token, http.MethodHead, "path="+path, nil).is(http.StatusNotFound)
	}
	for _, path := range []string{"d", "ff"} {
		tg.content(token, http.MethodHead, "path="+path, nil).is(http.StatusBadRequest)
	}
	put := func(query string, header ...string) *answered {
		t.Helper()
		return tg.content(token, http.MethodPut, query, strings.NewReader("x"), header...)
	}
	put("path=f", "If-Match", `"x"`).is(http.StatusBadRequest)
	put("path=f", "If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT").is(http.StatusBadRequest)
	put("path=f", "If-None-Match", `"x"`).is(http.StatusBadRequest)
	put("path=f", "Content-Range", "bytes 0-0/2").is(http.StatusBadRequest)
	put("path=f", "Content-Encoding", "gzip").is(http.StatusUnsupportedMediaType)
	put("path=f&mode=8").invalid("string_pattern_mismatch", "query", "mode")
	put("path=f&mode=4755").invalid("value_error", "query", "mode")
	put("path=f&mode=0").invalid("value_error", "query", "mode")
	if info, err := os.Stat(dir + "/f"); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
	tg.content("wrong", http.MethodGet, "path=f", nil).is(http.StatusUnauthorized)
}

func TestContent_Upload(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	put := func(query, data string, header ...string) *answered {
		t.Helper()
		return tg.content(token, http.MethodPut, query, strings.NewReader(data), header...)
	}
	is := func(name, data string, mode os.FileMode) {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(dir, name))
		info, statErr := os.Stat(filepath.Join(dir, name))
		if string(got) != data || err != nil || statErr != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %q, %v; %v, %v", name, got, err, info, statErr)
		}
	}
	put("path=a/b/f", "one").is(http.StatusNoContent)
	is("a/b/f", "one", 0o644)
	put("path=a/b/f&mode=600", "two").is(http.StatusNoContent)
	is("a/b/f", "two", 0o644) // it keeps its own
	put("path=x&mode=0750", "").is(http.StatusNoContent)
	is("x", "", 0o750)
	put("path=a/b/f", "three", "If-None-Match", "*").failsAt(http.StatusPreconditionFailed, "FileExistsError")
	is("a/b/f", "two", 0o644)
	put("path=new", "four", "If-None-Match", "*").is(http.StatusNoContent)
	is("new", "four", 0o644)
	put("path="+url.QueryEscape(dir+"/n\xff"), "five").is(http.StatusNoContent)
	is("n\xff", "five", 0o644)
}

// block is what a pattern repeats: of no length that anything else has.
var block = func() []byte {
	b := make([]byte, 1<<20-3)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}()

// pattern is bytes that can be made again.
type pattern struct{ at, size int64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	n := copy(b[:min(int64(len(b)), p.size-p.at)], block[p.at%int64(len(block)):])
	p.at += int64(n)
	return n, nil
}

// A large file goes both ways in bounded memory (contract F8).
func TestContent_Large(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	const size = 64 << 20
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tg.content(token, http.MethodPut, "path=large", io.Reader(&pattern{size: size})).is(http.StatusNoContent)
	req := tg.request(t.Context(), token, http.MethodGet, "/sessions/s/files/content?path=large", nil)
	resp, err := tg.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, want := sha256.New(), sha256.New()
	n, err := io.CopyN(got, resp.Body, size/2)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > size/4 {
		t.Errorf("%d MiB are held in the middle of a download", grown>>20)
	}
	rest, err := io.Copy(got, resp.Body)
	if err != nil || n+rest != size {
		t.Fatalf("%d bytes, %v", n+rest, err)
	}
	if _, err := io.Copy(want, &pattern{size: size}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("it came back as something else")
	}
}

// Of an upload whose client goes nothing is left.
func TestContent_UploadThatBreaks(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	if err := os.WriteFile(dir+"/f", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	requests := []string{"PUT /sessions/s/files/content?path=f", "POST /sessions/s/files/write?path=" + url.QueryEscape(dir+"/f")}
	framings := []string{"Content-Length: 1000000", "Transfer-Encoding: chunked"}
	for _, request := range requests {
		for _, framing := range framings {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", tg.server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			chunk := strings.Repeat("x", 3*pieceSize+1)
			if strings.HasPrefix(framing, "T") {
				chunk = strconv.FormatInt(int64(len(chunk)), 16) + "\r\n" + chunk + "\r\n"
			}
			_, err = io.WriteString(conn, request+" HTTP/1.1\r\nHost: x\r\n"+tokenHeader+": "+token+"\r\n"+framing+"\r\n\r\n"+chunk)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
	}
	eventually(t, "the end of all", func() bool {
		events := tg.call(token, http.MethodGet, "/sessions/s/events", nil).object(http.StatusOK)["events"].([]any)
		failed := 0
		for _, e := range events {
			if e := e.(map[string]any); e["op"] == "write" && e["ok"] == false {
				failed++
			}
		}
		return failed == len(requests)*len(framings)
	})
	if data, err := os.ReadFile(dir + "/f"); string(data) != "old" {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if names, err := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

// A client never takes a part for the whole.
func TestContent_FileThatChanges(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	const size = 64 << 20
	if err := os.WriteFile(dir+"/f", make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	req := tg.request(t.Context(), token, http.MethodGet, "/sessions/s/files/content?path=f", nil)
	resp, err := tg.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := os.Truncate(dir+"/f", 1<<20); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes were taken for all of %d", n, size)
	}
}

func TestContent_DownloadThatBreaks(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	if err := os.WriteFile(dir+"/f", make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		req := tg.request(ctx, token, http.MethodGet, "/sessions/s/files/content?path=f", nil)
		resp, err := tg.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, resp.Body, 1000); err != nil {
			t.Error(err)
		}
		cancel()
		if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		resp.Body.Close()
	}
	// What served them has ended, or goleak says so; and the next one is served.
	tg.content(token, http.MethodGet, "path=f", nil, "Range", "bytes=0-0").is(http.StatusPartialContent)
}

func TestContent_Purge(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	pr, pw := io.Pipe()
	done := make(chan *answered, 1)
	go func() { done <- tg.content(token, http.MethodPut, "path=f", pr) }()
	if _, err := pw.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	tg.call(serviceToken, http.MethodDelete, "/sessions/s?purge=true", nil).is(http.StatusNoContent)
	go func() {
		for {
			if _, err := pw.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}()
	got := <-done
	pr.CloseWithError(io.ErrClosedPipe)
	if got.status != http.StatusGone {
		t.Errorf("%d: %s", got.status, got.body)
	}
}
