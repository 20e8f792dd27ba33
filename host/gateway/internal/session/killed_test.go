package session_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/berth-dev/berth/host/gateway/internal/session"
	"github.com/berth-dev/berth/host/gateway/internal/store"
	"github.com/berth-dev/berth/shared/workspace"
)

// victimEnv holds what a gateway does that is to be killed.
const victimEnv = "SESSION_TEST_VICTIM"

// order is what it does: it opens sessions, and says so when their workspaces are
// made but not yet known to it, or when a command runs in the first one.
type order struct {
	URL, Root string
	IDs       []string // empty: anonymous
	InCreate  bool
}

// victim is the process of such a gateway.
func victim() {
	if err := serveVictim(); err != nil {
		fmt.Println("error:", err)
	}
	os.Exit(0)
}

func serveVictim() error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &o); err != nil {
		return err
	}
	ctx := context.Background()
	st, err := store.Open(ctx, o.URL)
	if err != nil {
		return err
	}
	f := &folders{root: o.Root}
	if o.InCreate {
		f.onMade = func(ctx context.Context, _ string) error {
			fmt.Println("ready")
			<-ctx.Done()
			return ctx.Err()
		}
	}
	dir, err := os.MkdirTemp("", "victim")
	if err != nil {
		return err
	}
	config := baseConfig()
	config.Host, config.Store = f.newHost(dir), st
	m, err := session.New(config)
	if err != nil {
		return err
	}
	for _, id := range o.IDs[1:] {
		go func() { _, _, _ = m.Open(ctx, session.OpenRequest{ID: id}) }()
	}
	info, _, err := m.Open(ctx, session.OpenRequest{ID: o.IDs[0]})
	if err != nil {
		return err
	}
	u, err := m.Acquire(ctx, info.ID)
	if err != nil {
		return err
	}
	if _, err := m.RunBegin(ctx, session.RunInfo{Session: info.ID, ID: "r"}, func() {}); err != nil {
		return err
	}
	_, err = u.Workspace.Run(ctx, workspace.Command{Script: "echo; exec sleep 600", Stdout: readyWriter{}})
	return errors.Join(err, errors.New("the command ended"))
}

type readyWriter struct{}

func (readyWriter) Write(p []byte) (int, error) {
	fmt.Println("ready")
	return len(p), nil
}

// kill starts such a gateway and kills it when all of it is ready.
func kill(t *testing.T, o order) {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+string(data), "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	want := 1
	if o.InCreate {
		want = len(o.IDs)
	}
	for range want {
		if !lines.Scan() || lines.Text() != "ready" {
			t.Fatalf("the gateway that is to be killed: %q, %v", lines.Text(), lines.Err())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

func testKilledInCreate(t *testing.T, b bed) {
	kill(t, order{URL: b.url, Root: b.root, IDs: []string{"named", "lost", ""}, InCreate: true})
	before := b.workspaces(t)
	if len(before) != 3 {
		t.Fatalf("there are %q", before)
	}
	m := b.manager(t)
	eventually(t, "its lease runs out, and the session is taken over", func() bool {
		_, _, err := m.Open(t.Context(), session.OpenRequest{ID: "named", Reuse: true})
		if err != nil && kind(t, err) != session.Opening {
			t.Fatal(err)
		}
		return err == nil
	})
	eventually(t, "what nobody came back for is removed", func() bool { return len(b.workspaces(t)) == 1 })
	output(t, m, "named", "echo")
	if n := b.creates.Load(); n != 0 {
		t.Errorf("%d workspaces were made instead of those that were there", n)
	}
	eventually(t, "nothing is left", func() bool {
		counts, err := m.Count(t.Context())
		return err == nil && counts == session.Counts{Resident: 1, Open: 1}
	})
}

func testKilledInRun(t *testing.T, b bed) {
	kill(t, order{URL: b.url, Root: b.root, IDs: []string{"a"}})
	m := b.manager(t, evict(0))
	if got := output(t, m, "a", "echo on"); got != "on\n" {
		t.Errorf("%q", got)
	}
	eventually(t, "its run is known to have ended", func() bool {
		runs, err := m.Runs(t.Context(), "a")
		return err == nil && len(runs) == 1 && runs[0].End != nil
	})
	if err := m.StopRun(t.Context(), "a", "r"); err != nil {
		t.Error(err)
	}
	done, err := m.RunBegin(t.Context(), session.RunInfo{Session: "a", ID: "r"}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	done(session.RunEnd{})
	eventually(t, "its use runs out too", func() bool {
		info, err := m.Get(t.Context(), "a")
		return err == nil && info.State == session.Hibernated
	})
}
