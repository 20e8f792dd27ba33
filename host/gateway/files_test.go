//go:build unix

package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// fileCall makes a file operation of the protocol. For write, body is what is
// written.
func (tg *testGateway) fileCall(token, id, op, path string, body ...byte) *answered {
	tg.t.Helper()
	if op == "write" {
		return tg.call(token, http.MethodPost, "/sessions/"+id+"/files/write?path="+url.QueryEscape(path), body)
	}
	return tg.call(token, http.MethodPost, "/sessions/"+id+"/files/"+op, map[string]any{"path": path})
}

// failsAt demands an error about a path.
func (a *answered) failsAt(status int, class string) {
	a.t.Helper()
	detail, _ := a.object(status)["detail"].(map[string]any)
	if detail["error"] != class || detail["message"] == "" {
		a.t.Errorf("%s: %.400s\nwant %s", a.what, a.body, class)
	}
}

// handedBack demands a 409 with a word of why.
func (a *answered) handedBack() {
	a.t.Helper()
	if detail, _ := a.object(http.StatusConflict)["detail"].(string); detail == "" {
		a.t.Errorf("%s: %.400s\nwant a text", a.what, a.body)
	}
}

// workDir is where a session's files are, for the gateway and for the test alike.
func (tg *testGateway) workDir(token, id string) string {
	tg.t.Helper()
	return strings.TrimSuffix(tg.sh(token, id, "pwd -P"), "\n")
}

func TestFiles(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("demo-2")
	dir := tg.workDir(token, "demo-2")
	call := func(op, path string, body ...byte) *answered {
		t.Helper()
		return tg.fileCall(token, "demo-2", op, path, body...)
	}
	entry := func(name, path string, isDir bool, size any) map[string]any {
		return map[string]any{"name": name, "path": path, "is_dir": isDir, "size": size}
	}
	same := func(got map[string]any, want map[string]any) {
		t.Helper()
		if at, ok := got["modified_at"]; !ok || (at == nil) != (got["size"] == nil) {
			t.Errorf("%v has modified_at %v", got["path"], at)
		}
		delete(got, "modified_at")
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		if !bytes.Equal(g, w) {
			t.Errorf("%s\nwant %s", g, w)
		}
	}

	content := []byte("\x00\xff hello\n")
	call("write", dir+"/a/b.bin", content...).is(http.StatusNoContent)
	got := call("read", dir+"/a/b.bin").is(http.StatusOK)
	if !bytes.Equal(got.body, content) || got.header.Get("Content-Type") != bytesType {
		t.Errorf("%q, %v", got.body, got.header)
	}
	same(call("stat", dir+"/a/b.bin").object(http.StatusOK), entry("b.bin", dir+"/a/b.bin", false, 9))
	same(call("stat", dir+"/a").object(http.StatusOK), entry("a", dir+"/a", true, nil))
	same(call("stat", dir+"/a/").object(http.StatusOK), entry("a", dir+"/a/", true, nil))
	if path := call("realpath", dir+"/a/../a/b.bin").object(http.StatusOK)["path"]; path != dir+"/a/b.bin" {
		t.Errorf("realpath: %v", path)
	}
	if path := call("realpath", dir+"/a/zz/y").object(http.StatusOK)["path"]; path != dir+"/a/zz/y" {
		t.Errorf("realpath: %v", path)
	}
	call("mkdir", dir+"/a/b.bin").failsAt(http.StatusBadRequest, "FileExistsError")
	call("mkdir", dir+"/a/b.bin/c").failsAt(http.StatusBadRequest, "NotADirectoryError")
	call("mkdir", dir+"/m/n").is(http.StatusNoContent)
	call("mkdir", dir+"/m/n").is(http.StatusNoContent)
	call("list", dir+"/a/b.bin").failsAt(http.StatusBadRequest, "NotADirectoryError")
	call("read", dir+"/a").failsAt(http.StatusBadRequest, "IsADirectoryError")
	call("write", dir+"/a", 'x').failsAt(http.StatusBadRequest, "IsADirectoryError")
	call("write", dir+"/a/b.bin/c", 'x').failsAt(http.StatusBadRequest, "NotADirectoryError")
	call("stat", dir+"/a/b.bin/c").failsAt(http.StatusBadRequest, "NotADirectoryError")
	for _, op := range []string{"read", "stat", "list", "remove"} {
		call(op, dir+"/nope").failsAt(http.StatusNotFound, "FileNotFoundError")
	}
	for _, path := range []string{"", ".", "a/b.bin"} {
		for _, op := range []string{"read", "write", "stat", "list", "mkdir", "remove", "realpath"} {
			if path != "" || op != "write" {
				call(op, path, 'x').failsAt(http.StatusBadRequest, "ValueError")
			}
		}
	}
	call("stat", dir+"/a\x00b").failsAt(http.StatusBadRequest, "ValueError")
	for _, path := range []string{dir, filepath.Dir(dir), "/", dir + "/.", dir + "/a/.."} {
		call("remove", path).failsAt(http.StatusBadRequest, "ValueError")
	}

	// Links, as the workspace sees them.
	tg.sh(token, "demo-2", `ln -s a l; ln -s /nope d; ln -s loop loop; mkfifo ff`)
	same(call("stat", dir+"/l").object(http.StatusOK), entry("l", dir+"/l", true, nil))
	call("stat", dir+"/d").failsAt(http.StatusNotFound, "FileNotFoundError")
	call("stat", dir+"/loop").handedBack()
	call("realpath", dir+"/loop/x").handedBack()
	call("stat", dir+"/ff").handedBack()
	call("read", dir+"/ff").handedBack()
	call("write", dir+"/ff", 'x').handedBack()
	var listed []map[string]any
	if err := json.Unmarshal(call("list", dir+"//./").is(http.StatusOK).body, &listed); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		entry("a", dir+"/a", true, nil), entry("d", dir+"/d", false, nil), entry("ff", dir+"/ff", false, nil),
		entry("l", dir+"/l", true, nil), entry("loop", dir+"/loop", false, nil), entry("m", dir+"/m", true, nil),
	}
	if len(listed) != len(want) {
		t.Fatalf("%v", listed)
	}
	for i := range want {
		delete(listed[i], "modified_at")
		listed[i]["modified_at"] = nil
		same(listed[i], want[i])
	}
	call("write", dir+"/l/through", 'x').is(http.StatusNoContent)
	if data := call("read", dir+"/a/through").is(http.StatusOK).body; string(data) != "x" {
		t.Errorf("%q", data)
	}
	call("remove", dir+"/l").is(http.StatusNoContent)
	call("stat", dir+"/a/through").is(http.StatusOK)
	call("remove", dir+"/a").is(http.StatusNoContent)
	call("stat", dir+"/a").failsAt(http.StatusNotFound, "FileNotFoundError")
	if list := call("list", dir+"/m/n").is(http.StatusOK).body; strings.TrimSpace(string(list)) != "[]" {
		t.Errorf("an empty folder: %s", list)
	}

	// Outside of the working directory, where this provider reaches.
	if got := call("read", "/etc/hostname"); got.status == http.StatusOK {
		if data, err := os.ReadFile("/etc/hostname"); err != nil || !bytes.Equal(data, got.body) {
			t.Errorf("%q, %q, %v", got.body, data, err)
		}
	}
}

func TestFiles_NamesThatJSONCannotHold(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	tg.fileCall(token, "s", "write", dir+"/d/n\xff", 'x').is(http.StatusNoContent)
	if data, err := os.ReadFile(dir + "/d/n\xff"); string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	tg.fileCall(token, "s", "list", dir+"/d").handedBack()
	tg.sh(token, "s", `ln -s "$(printf 'd/n\377')" l`)
	tg.fileCall(token, "s", "realpath", dir+"/l").handedBack()
	tg.fileCall(token, "s", "read", dir+"/l").is(http.StatusOK)
	for _, body := range []string{`{"path":"` + dir + `/n\udcff"}`, `{"path":"` + dir + "/n\xff" + `"}`} {
		if got := tg.call(token, http.MethodPost, "/sessions/s/files/stat", body); got.status != http.StatusUnprocessableEntity {
			t.Errorf("%q: %d: %s, want no other file to be meant", body, got.status, got.body)
		}
	}
	name := strings.Repeat("n", 300)
	for _, op := range []string{"read", "write", "stat", "list", "mkdir", "remove"} {
		tg.fileCall(token, "s", op, dir+"/"+name, 'x').handedBack()
	}
	deep := dir + strings.Repeat("/n", 5000)
	for _, op := range []string{"read", "write", "stat", "list", "mkdir", "remove", "realpath"} {
		if got := tg.fileCall(token, "s", op, deep, 'x'); got.status >= 500 {
			t.Errorf("%s of a long path: %d: %s", op, got.status, got.body)
		}
	}
}

func TestFiles_Limits(t *testing.T) {
	const most = 64 << 10
	tg := newTestGateway(t, func(c *Config) { c.Policy.MaxReadBytes = most })
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	exact := bytes.Repeat([]byte("x"), most)
	tg.fileCall(token, "s", "write", dir+"/ok", exact...).is(http.StatusNoContent)
	if got := tg.fileCall(token, "s", "read", dir+"/ok").is(http.StatusOK); !bytes.Equal(got.body, exact) {
		t.Errorf("%d bytes", len(got.body))
	}
	tg.fileCall(token, "s", "write", dir+"/more", append(exact, 'x')...).handedBack()
	if _, err := os.Stat(dir + "/more"); !os.IsNotExist(err) {
		t.Errorf("what was handed back is there: %v", err)
	}
	if err := os.WriteFile(dir+"/more", append(exact, 'x'), 0o600); err != nil {
		t.Fatal(err)
	}
	tg.fileCall(token, "s", "read", dir+"/more").handedBack()
	if size := tg.fileCall(token, "s", "stat", dir+"/more").object(http.StatusOK)["size"]; size != float64(most+1) {
		t.Errorf("%v", size)
	}
	// Of any length that is not told before.
	req := tg.request(t.Context(), token, http.MethodPost, "/sessions/s/files/write?path="+url.QueryEscape(dir+"/endless"), struct{ *endless }{&endless{}})
	if resp, err := tg.server.Client().Do(req); err == nil { // it may also be cut off
		if resp.StatusCode != http.StatusConflict {
			t.Errorf("an endless body: %s", resp.Status)
		}
		resp.Body.Close()
	}
	if _, err := os.Stat(dir + "/endless"); !os.IsNotExist(err) {
		t.Errorf("what never ended is there: %v", err)
	}
}

// endless is a body without an end.
type endless struct{}

func (*endless) Read(p []byte) (int, error) { return len(p), nil }

// A client of the protocol raises no PermissionError, but its commands do.
func TestFiles_Permission(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	if os.Geteuid() != 0 {
		tg.sh(token, "s", "echo x > secret; chmod 000 secret")
		for _, op := range []string{"read", "write"} {
			tg.fileCall(token, "s", op, dir+"/secret", 'x').handedBack()
		}
		return
	}
	// The same kind of error, of what root may not do either.
	if err := os.Mkdir(dir+"/p", 0o700); err != nil {
		t.Fatal(err)
	}
	got := nativeError("write", &os.PathError{Op: "create", Path: dir + "/p/x", Err: syscall.EACCES})
	if wire, ok := got.(*wireError); !ok || wire.status != http.StatusConflict { //nolint:errorlint // it is returned as it is
		t.Errorf("%v", got)
	}
}

// Of several who write a file, one has written all of it.
func TestFiles_AtOnce(t *testing.T) {
	tg := newTestGateway(t)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	const size = 1 << 20
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			data := bytes.Repeat([]byte{byte('a' + i)}, size)
			tg.fileCall(token, "s", "write", dir+"/f", data...).is(http.StatusNoContent)
			tg.content(token, http.MethodPut, "path=f", bytes.NewReader(data)).is(http.StatusNoContent)
		})
		all.Go(func() {
			if got := tg.fileCall(token, "s", "read", dir+"/f"); got.status == http.StatusOK {
				whole(t, got.body, size)
			}
			tg.fileCall(token, "s", "mkdir", dir+"/m/n").is(http.StatusNoContent)
			tg.run(token, "s", map[string]any{"argv": []string{"true"}}).is(http.StatusOK)
		})
	}
	all.Wait()
	whole(t, tg.fileCall(token, "s", "read", dir+"/f").is(http.StatusOK).body, size)
	if names, err := os.ReadDir(dir); len(names) != 2 || err != nil {
		t.Errorf("%v, %v", names, err)
	}
}

// whole demands so many bytes, all of them the same.
func whole(t *testing.T, data []byte, size int) {
	t.Helper()
	if len(data) != size || bytes.Count(data, data[:1]) != size {
		t.Errorf("%d bytes, of which %d are as the first", len(data), bytes.Count(data, data[:1]))
	}
}
