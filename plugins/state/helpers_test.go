package state

import (
	"bytes"
	"context"
	"io"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

var (
	// quick is a sweeper that does not keep a test waiting. It takes nobody for
	// dead, since on a loaded machine anyone may be late.
	quick = timing{interval: 20 * time.Millisecond, missed: math.MaxInt}
	// burying is one that does, though only after two seconds.
	burying = timing{interval: 20 * time.Millisecond, missed: 100}
)

// deadline is for what is polled for: far beyond what a loaded machine needs.
const deadline = 5 * time.Minute

func sized(n int64) *Size { s := Size(n); return &s }

// newProvider opens a provider that closes with the test.
func newProvider(t testing.TB, config Config, name string) *provider {
	t.Helper()
	return newProviderWith(t, config, name, quick)
}

func newProviderWith(t testing.TB, config Config, name string, timing timing) *provider {
	t.Helper()
	p, err := open(t.Context(), config, sdk.Env{Provider: name, DataDir: t.TempDir(), Logger: hclog.NewNullLogger()}, timing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// inFile is the configuration of a store in a file of the test's own.
func inFile(t testing.TB) Config {
	t.Helper()
	return Config{Store: "file:" + filepath.Join(t.TempDir(), "state.db")}
}

func create(t testing.TB, p *provider, name string) *document {
	t.Helper()
	ws, err := p.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return ws.(*document)
}

// newDocument is a workspace in a file.
func newDocument(t testing.TB) *document {
	t.Helper()
	return create(t, newProvider(t, inFile(t), "notes"), "")
}

// eachStore runs a test on every kind of store.
func eachStore(t *testing.T, test func(t *testing.T, d *document)) {
	t.Run("file", func(t *testing.T) { test(t, newDocument(t)) })
	t.Run("memory", func(t *testing.T) { test(t, create(t, newProvider(t, Config{Store: "memory"}, "notes"), "")) })
}

func write(ctx context.Context, d *document, path string, data []byte, opts workspace.WriteOptions) error {
	w, err := d.Create(ctx, path, opts)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Close()
}

func mustWrite(t testing.TB, d *document, path, data string) {
	t.Helper()
	if err := write(t.Context(), d, path, []byte(data), workspace.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func read(ctx context.Context, d *document, path string, opts workspace.ReadOptions) ([]byte, error) {
	r, err := d.Open(ctx, path, opts)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func wantFile(t testing.TB, d *document, path, want string) {
	t.Helper()
	got, err := read(t.Context(), d, path, workspace.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, []byte(want)) {
		t.Fatalf("%s holds %d bytes, want %d", path, len(got), len(want))
	}
}

// pattern is n bytes that differ from chunk to chunk.
func pattern(n int, seed byte) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ seed
	}
	return data
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", deadline, what)
}

// count answers a query about the store itself.
func count(t testing.TB, p *provider, query string) (n int64) {
	t.Helper()
	err := p.store.view(t.Context(), func(t tx) error {
		_, err := t.(sqliteTx).c.row(query, nil, &n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
