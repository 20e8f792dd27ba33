//go:build unix

package gateway

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// The gateway's own share of a call: each one beside the host's for the same.
func BenchmarkCalls(b *testing.B) {
	tg := newTestGateway(b)
	token := tg.open("s")
	dir := tg.workDir(token, "s")
	use, err := tg.sessions.Acquire(b.Context(), "s")
	if err != nil {
		b.Fatal(err)
	}
	defer use.Release()
	ws := use.Workspace
	const size = 8 << 20
	data := bytes.Repeat([]byte("x"), size)
	check := func(b *testing.B, err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	check(b, ws.WriteFile(b.Context(), dir+"/f", data))
	for _, bench := range []struct {
		name  string
		bytes int64
		host  func(b *testing.B)
		http  func(b *testing.B)
	}{
		{"run", 0, func(b *testing.B) {
			_, err := ws.Run(b.Context(), workspace.Command{Args: []string{"true"}})
			check(b, err)
		}, func(*testing.B) {
			tg.run(token, "s", map[string]any{"argv": []string{"true"}}).is(http.StatusOK)
		}},
		{"stat", 0, func(b *testing.B) {
			_, err := ws.Stat(b.Context(), dir)
			check(b, err)
		}, func(*testing.B) {
			tg.fileCall(token, "s", "stat", dir).is(http.StatusOK)
		}},
		{"write", size, func(b *testing.B) {
			check(b, ws.WriteFile(b.Context(), dir+"/f", data))
		}, func(*testing.B) {
			tg.fileCall(token, "s", "write", dir+"/f", data...).is(http.StatusNoContent)
		}},
		{"read", size, func(b *testing.B) {
			_, err := ws.ReadFile(b.Context(), dir+"/f")
			check(b, err)
		}, func(*testing.B) {
			tg.fileCall(token, "s", "read", dir+"/f").is(http.StatusOK)
		}},
		{"upload", size, func(b *testing.B) {
			check(b, ws.WriteFile(b.Context(), dir+"/f", data))
		}, func(*testing.B) {
			tg.content(token, http.MethodPut, "path=f", bytes.NewReader(data)).is(http.StatusNoContent)
		}},
		{"download", size, func(b *testing.B) {
			_, err := ws.ReadFile(b.Context(), dir+"/f")
			check(b, err)
		}, func(*testing.B) {
			tg.content(token, http.MethodGet, "path=f", nil).is(http.StatusOK)
		}},
		{"output", size, func(b *testing.B) {
			_, err := ws.Run(b.Context(), workspace.Command{Args: []string{"cat", "f"}})
			check(b, err)
		}, func(*testing.B) {
			tg.run(token, "s", map[string]any{"argv": []string{"cat", "f"}}).is(http.StatusOK)
		}},
		{"stream", size, func(b *testing.B) {
			_, err := ws.Run(b.Context(), workspace.Command{Args: []string{"cat", "f"}})
			check(b, err)
		}, func(b *testing.B) {
			s := tg.stream(token, http.MethodPost, "/sessions/s/runs", map[string]any{"argv": []string{"cat", "f"}})
			_, err := io.Copy(io.Discard, s.resp.Body)
			check(b, err)
		}},
	} {
		for _, by := range []struct {
			name string
			call func(*testing.B)
		}{{"host", bench.host}, {"http", bench.http}} {
			b.Run(bench.name+"/"+by.name, func(b *testing.B) {
				b.SetBytes(bench.bytes)
				for b.Loop() {
					by.call(b)
				}
			})
		}
	}
}
