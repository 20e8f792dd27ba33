package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestL2_TheSameTokenGivesTheSameWorkspace(t *testing.T) {
	config := inFile(t)
	a, b := newProvider(t, config, "notes"), newProvider(t, config, "notes")
	for range 5 {
		token := workspace.NewToken()
		var wg sync.WaitGroup
		made := make([]*document, 16)
		for i := range made {
			wg.Go(func() {
				ws, err := []*provider{a, b}[i%2].Create(t.Context(), sdk.CreateRequest{Token: token})
				if err != nil {
					t.Error(err)
					return
				}
				made[i] = ws.(*document)
			})
		}
		wg.Wait()
		for _, d := range made {
			if d == nil || d.Incarnation() != made[0].Incarnation() || d.ID() != token {
				t.Fatalf("got %+v and %+v", d, made[0])
			}
		}
	}
	if n := count(t, a, "SELECT count(*) FROM workspaces"); n != 5 {
		t.Fatalf("%d workspaces, want 5", n)
	}
}

func TestL3_AttachNeverCreates(t *testing.T) {
	p := newProvider(t, inFile(t), "notes")
	if _, err := p.Attach(t.Context(), "nothing"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Fatalf("attach to nothing: %v", err)
	}
	d := create(t, p, "conv-1")
	mustWrite(t, d, "/f", "x")
	again, err := p.Attach(t.Context(), "conv-1")
	if err != nil {
		t.Fatal(err)
	}
	wantFile(t, again.(*document), "/f", "x")
}

func TestL6_DestroyIsTheOnlyEnd(t *testing.T) {
	config := inFile(t)
	p, other := newProvider(t, config, "notes"), newProvider(t, config, "other")
	d := create(t, p, "conv-1")
	mustWrite(t, d, "/f", "x")
	for op, err := range map[string]error{
		"destroy": other.Destroy(t.Context(), "conv-1"),
		"attach":  second(other.Attach(t.Context(), "conv-1")),
		"create":  second(other.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: "conv-1"})),
	} {
		if !errors.Is(err, workspace.ErrInvalid) || !strings.Contains(err.Error(), "provider notes") {
			t.Errorf("%s of another provider's: %v", op, err)
		}
	}
	wantFile(t, d, "/f", "x")
	for range 2 {
		if err := p.Destroy(t.Context(), "conv-1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Stat(t.Context(), "/f"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Fatalf("stat in a destroyed workspace: %v", err)
	}
	fresh := create(t, p, "conv-1") // L8: of the same name, and not the same
	if fresh.Incarnation() == d.Incarnation() {
		t.Fatal("a new workspace has the old one's incarnation")
	}
	if err := write(t.Context(), d, "/f", nil, workspace.WriteOptions{}); !errors.Is(err, workspace.ErrUnavailable) {
		t.Fatalf("write through the old handle: %v", err)
	}
	eventually(t, "nothing is left of the destroyed workspace", func() bool {
		return count(t, p, "SELECT (SELECT count(*) FROM nodes) + (SELECT count(*) FROM blobs) + (SELECT count(*) FROM garbage)") == 1
	})
}

func second(_ any, err error) error { return err }

func TestListTellsWhatThisProviderMade(t *testing.T) {
	config := inFile(t)
	p, other := newProvider(t, config, "notes"), newProvider(t, config, "other")
	create(t, other, "theirs")
	start := time.Now()
	for i := range listPage + 3 {
		_, err := p.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"i": strconv.Itoa(i)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for info, err := range p.List(t.Context(), workspace.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if info.ID != info.Name || info.Labels["i"] != info.ID[1:] || info.Created.Before(start) || seen[info.ID] {
			t.Fatalf("listed %+v", info)
		}
		seen[info.ID] = true
	}
	if len(seen) != listPage+3 {
		t.Fatalf("%d listed, want %d", len(seen), listPage+3)
	}
}

func TestLimits(t *testing.T) {
	eachStore := func(test func(t *testing.T, config Config)) {
		t.Run("file", func(t *testing.T) { test(t, inFile(t)) })
		t.Run("memory", func(t *testing.T) { test(t, Config{Store: "memory"}) })
	}
	eachStore(func(t *testing.T, config Config) {
		config.MaxFileSize, config.MaxTotalSize = sized(2*chunkSize), sized(3*chunkSize)
		d := create(t, newProvider(t, config, "notes"), "")
		put := func(path string, n int, opts workspace.WriteOptions) error {
			return write(t.Context(), d, path, pattern(n, 1), opts)
		}
		if err := put("/big", 2*chunkSize+1, workspace.WriteOptions{}); !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "max_file_size") {
			t.Fatalf("a file over the limit: %v", err)
		}
		if err := put("/big", 4*chunkSize, workspace.WriteOptions{}); !errors.Is(err, syscall.EFBIG) {
			t.Fatalf("a staged file over the limit: %v", err)
		}
		if err := put("/d/a", 2*chunkSize, workspace.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := put("/d/a", 1, workspace.WriteOptions{Append: true}); !errors.Is(err, syscall.EFBIG) {
			t.Fatalf("an append over the limit: %v", err)
		}
		for _, n := range []int{chunkSize + 1, 2 * chunkSize} {
			err := put("/b", n, workspace.WriteOptions{})
			var pathErr *fs.PathError
			if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &pathErr) || pathErr.Path != "/b" || !strings.Contains(err.Error(), "max_total_size") {
				t.Fatalf("%d bytes over the total: %v", n, err)
			}
		}
		if _, err := d.Lstat(t.Context(), "/b"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("what was refused is there: %v", err)
		}
		for range 3 { // replaced, it does not count twice
			if err := put("/d/a", 2*chunkSize, workspace.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 { // a removed tree makes room at once
			if err := d.Remove(t.Context(), "/d"); err != nil {
				t.Fatal(err)
			}
			if err := put("/d/a", 2*chunkSize-i, workspace.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := put("/d/b", chunkSize+i, workspace.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the count of bytes is right again", func() bool {
			var used int64
			err := d.store.view(t.Context(), func(t tx) error {
				r, _, _, err := t.document(d.id)
				used = r.used
				return err
			})
			return err == nil && used == 3*chunkSize
		})
	})
}

func TestLimitsOfOneWorkspace(t *testing.T) {
	p := newProvider(t, inFile(t), "notes")
	ws, err := p.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Name: "small", Overrides: json.RawMessage(`{"max_file_size": "1k"}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []sdk.Workspace{ws, must(p.Attach(t.Context(), "small"))(t)} {
		if err := write(t.Context(), d.(*document), "/f", pattern(1025, 0), workspace.WriteOptions{}); !errors.Is(err, syscall.EFBIG) {
			t.Fatalf("over its own limit: %v", err)
		}
	}
	if _, err := p.Create(t.Context(), sdk.CreateRequest{Token: workspace.NewToken(), Overrides: json.RawMessage(`{"store": "memory"}`)}); !errors.Is(err, workspace.ErrInvalid) {
		t.Fatalf("a key that is not per workspace: %v", err)
	}
}

func must(ws sdk.Workspace, err error) func(testing.TB) sdk.Workspace {
	return func(t testing.TB) sdk.Workspace {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return ws
	}
}

func TestMemoryEndsWithItsProcess(t *testing.T) {
	p := newProvider(t, Config{Store: "memory"}, "notes")
	d := create(t, p, "conv-1")
	mustWrite(t, d, "/f", "x")
	if !p.Ephemeral() || len(p.Deviations()) == 0 {
		t.Fatal("memory is not declared ephemeral and deviating")
	}
	next := newProvider(t, Config{Store: "memory"}, "notes")
	if _, err := next.Attach(t.Context(), "conv-1"); !errors.Is(err, workspace.ErrUnavailable) {
		t.Fatalf("attach after a restart: %v", err)
	}
	if q := newProvider(t, inFile(t), "notes"); q.Ephemeral() || len(q.Deviations()) > 0 {
		t.Fatal("a file is declared ephemeral or deviating")
	}
}

func TestStorePath(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", "/home/me")
	for spec, want := range map[string]string{
		"": "/data/state.db", "memory": "", "file:/a/../b.db": "/b.db", "file:///b.db": "/b.db",
		"file:./notes.db": filepath.Join(here, "notes.db"), "file:a b?c#%41.db": filepath.Join(here, "a b?c#%41.db"), "file:~/n.db": "/home/me/n.db",
	} {
		if got, err := storePath(spec, "/data"); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", spec, got, err, want)
		}
	}
	for _, spec := range []string{"file:", "notes.db", "postgres://x", "Memory"} {
		if got, err := storePath(spec, "/data"); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%q: %q, %v", spec, got, err)
		}
	}
}

func TestAFileWithAnyName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "a b?mode=ro#%41'\"\xff.db")
	p := newProvider(t, Config{Store: "file:" + path}, "notes")
	mustWrite(t, create(t, p, "w"), "/f", "x")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != storeFileMode {
		t.Fatalf("mode %v, want %v", info.Mode(), storeFileMode)
	}
}

func TestWhatIsNotAStoreIsRefusedAndUntouched(t *testing.T) {
	dir := t.TempDir()
	sqlFile := func(name, script string) string {
		path := filepath.Join(dir, name)
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), script); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rawFile := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	blocked := rawFile("blocked", []byte("a file"))
	for name, c := range map[string]struct{ path, want string }{
		"text":    {rawFile("text", []byte(strings.Repeat("no database at all\n", 1000))), "not an SQLite file"},
		"foreign": {sqlFile("foreign", "CREATE TABLE users (id); PRAGMA user_version = 1"), "another program"},
		"marked":  {sqlFile("marked", "PRAGMA application_id = 77"), "another program"},
		"newer":   {sqlFile("newer", fmt.Sprintf("CREATE TABLE later (id); PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, schemaVersion+1)), "newer than this plugin's"},
		"folder":  {dir, "cannot be opened"},
		"blocked": {filepath.Join(blocked, "state.db"), "folder"},
	} {
		before, _ := os.ReadFile(c.path)
		p, err := open(t.Context(), Config{Store: "file:" + c.path}, sdk.Env{Provider: "notes"}, quick)
		if err == nil {
			t.Errorf("%s: opened: %v", name, p.Close())
			continue
		}
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if after, _ := os.ReadFile(c.path); string(after) != string(before) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestADamagedFileIsAnErrorThatSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	config := Config{Store: "file:" + path}
	p, err := open(t.Context(), config, sdk.Env{Provider: "notes"}, quick)
	if err != nil {
		t.Fatal(err)
	}
	d := create(t, p, "w")
	for i := range 200 {
		mustWrite(t, d, fmt.Sprintf("/f%d", i), strings.Repeat("x", 5000))
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(data); i++ {
		data[i] ^= 0x5a
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err = open(t.Context(), config, sdk.Env{Provider: "notes"}, quick)
	if err == nil {
		_, err = p.Attach(context.Background(), "w")
		_ = p.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "damaged") || errors.Is(err, workspace.ErrUnavailable) {
		t.Fatalf("a damaged file: %v", err)
	}
}

func TestAFullDiskIsENOSPC(t *testing.T) {
	p := newProvider(t, inFile(t), "notes")
	d := create(t, p, "w")
	mustWrite(t, d, "/before", "x")
	st := p.store.(*sqliteStore)
	w := <-st.write
	for _, c := range []*conn{w.durable, w.lazy} { // SQLite's own answer to a full disk
		if _, err := c.exec("PRAGMA max_page_count=100"); err != nil {
			t.Fatal(err)
		}
	}
	st.write <- w
	for _, n := range []int{chunkSize - 1, 4 * chunkSize} {
		for i := range 20 {
			path := fmt.Sprintf("/f%d-%d", n, i)
			err := write(t.Context(), d, path, pattern(n, 0), workspace.WriteOptions{})
			if err == nil {
				continue
			}
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "disk is full") {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if _, err := d.Stat(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("half a file is there: %v", err)
			}
			break
		}
	}
	wantFile(t, d, "/before", "x")
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "17": 17, "1k": 1024, "512m": 512 << 20, "10GiB": 10 << 30, "3KB": 3072, "1t": 1 << 40, "5B": 5} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "1.5g", "k", "1x", "99999999999999999999", "9223372036854775807k", " 1", "1bk"} {
		if got, err := ParseSize(text); !errors.Is(err, workspace.ErrInvalid) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}
