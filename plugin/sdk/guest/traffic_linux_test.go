package guest_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/wire/guestv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func digestOf(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func TestHelloTellsTheGuestItself(t *testing.T) {
	m := startMachine(t, "serve")
	hello := m.connect(t).Hello()
	if got := hex.EncodeToString(hello.Digest[:]); got != digestOf(t, m.binary) {
		t.Errorf("digest %s", got)
	}
	if int(hello.UID) != os.Getuid() || int(hello.GID) != os.Getgid() {
		t.Errorf("user %d:%d", hello.UID, hello.GID)
	}
	if again := m.connect(t).Hello(); again != hello {
		t.Errorf("%+v, and then %+v", hello, again)
	}
}

// TestTwentyClients has each on a connection of its own.
func TestTwentyClients(t *testing.T) {
	m := startMachine(t, "init")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			conn, err := m.dial(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			c, err := guest.Connect(t.Context(), conn, "test")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for j := range 5 {
				want := fmt.Sprintf("%d-%d", i, j)
				if r := shell(t.Context(), c, "printf "+want); r.err != nil || r.stdout != want {
					t.Errorf("%s: %+v", want, r)
				}
			}
		})
	}
	all.Wait()
}

// TestTooManyClientsAreRefused, and served again when there are fewer.
func TestTooManyClientsAreRefused(t *testing.T) {
	m := startMachine(t, "serve")
	var conns []*guest.Client
	var refused error
	for range 100 {
		conn, err := m.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := guest.Connect(t.Context(), conn, "test")
		if err != nil {
			refused = err
			break
		}
		conns = append(conns, c)
	}
	if refused == nil || len(conns) < 20 {
		t.Errorf("%d clients were served, and then: %v", len(conns), refused)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	eventually(t, "a client is served", func() bool {
		conn, err := m.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := guest.Connect(t.Context(), conn, "test")
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// peak is the most memory that a process has had, in bytes.
func peak(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestLargeFilesGoThrough has 64 MiB in and out, and no process that holds them.
func TestLargeFilesGoThrough(t *testing.T) {
	const size = 64 << 20
	m := startMachine(t, "serve")
	c := m.connect(t)
	chunk := make([]byte, wire.ChunkSize)
	for i := range chunk {
		chunk[i] = byte(i * 7 / 3)
	}
	sum := sha256.New()
	write, err := c.Provider().WriteFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *berthv1.WriteFileRequest) {
		if err := write.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Start{Start: &berthv1.WriteFileStart{Workspace: c.Key(), Path: []byte("a/large")}}})
	for i := 0; i < size; i += len(chunk) {
		chunk[0] = byte(i / len(chunk))
		sum.Write(chunk)
		send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_Data{Data: chunk}})
	}
	send(&berthv1.WriteFileRequest{Message: &berthv1.WriteFileRequest_End{End: size}})
	if answer, err := write.CloseAndRecv(); err != nil || answer.GetWritten() != size {
		t.Fatalf("written %d: %v", answer.GetWritten(), err)
	}
	want := hex.EncodeToString(sum.Sum(nil))
	if got := digestOf(t, filepath.Join(m.dir, "a", "large")); got != want {
		t.Errorf("the file is another one")
	}
	read, err := c.Provider().ReadFile(t.Context(), &berthv1.ReadFileRequest{Workspace: c.Key(), Path: []byte("a/large")})
	if err != nil {
		t.Fatal(err)
	}
	sum.Reset()
	for {
		answer, err := read.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(answer.GetData())
	}
	if hex.EncodeToString(sum.Sum(nil)) != want {
		t.Error("what is read is another file")
	}
	const most = 48 << 20
	for name, pid := range map[string]int{"serve": m.role.Process.Pid, "connect": m.connects[0].Process.Pid} {
		if got := peak(t, pid); got > most {
			t.Errorf("%s had %d MiB of memory", name, got>>20)
		}
	}
}

// TestAKilledConnectEndsItsCalls, and no other.
func TestAKilledConnectEndsItsCalls(t *testing.T) {
	m := startMachine(t, "serve")
	c, other := m.connect(t), m.connect(t)
	stream, err := begin(t.Context(), other, newRunID(), "read -r line; echo $line", false)
	if err != nil {
		t.Fatal(err)
	}
	if r := follow(stream); r.err != nil || r.stdout != "\n" {
		t.Fatalf("%+v", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err = begin(ctx, c, newRunID(), "echo $$; exec sleep 600", false)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	for pid == 0 {
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if out := answer.GetStdout().GetData(); out != nil {
			if pid, err = strconv.Atoi(string(bytes.TrimSpace(out))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := m.connects[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := follow(stream); r.err == nil {
		t.Errorf("the run has an outcome: %+v", r)
	}
	if ctx.Err() != nil {
		t.Errorf("it did not end within %v", patience)
	}
	eventually(t, "the command without a stream is stopped", func() bool {
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	})
	if r := shell(t.Context(), other, "echo on"); r.stdout != "on\n" {
		t.Errorf("the other connection: %+v", r)
	}
}

// TestAKilledConnectIsReplaced when the next call needs one.
func TestAKilledConnectIsReplaced(t *testing.T) {
	m := startMachine(t, "init")
	ws := m.open(t, m.options())
	for range 3 {
		if err := m.connects[len(m.connects)-1].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a call gets through", func() bool {
			conn, err := ws.BerthRelay(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			_, err = conn.Client.MkdirAll(t.Context(), &berthv1.MkdirAllRequest{Workspace: conn.Key, Path: []byte("a")})
			if err != nil {
				if err := conn.Explain(t.Context(), err); !errors.Is(err, workspace.ErrTransient) {
					t.Fatal(err)
				}
			}
			return err == nil
		})
	}
	if n := len(m.connects); n != 4 {
		t.Errorf("%d connections", n)
	}
}

// sockets is how many of them a process has.
func sockets(t testing.TB, pid int) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if to, _ := os.Readlink(filepath.Join(dir, entry.Name())); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestASilentConnectionIsDropped by both sides, though nobody has closed it: the
// process between them has stopped.
func TestASilentConnectionIsDropped(t *testing.T) {
	t.Parallel()
	m := startMachine(t, "serve")
	c := m.connect(t)
	with := sockets(t, m.role.Process.Pid) // its own and this one's
	if err := m.connects[0].Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The client, when it drops it, waits for the process.
	defer func() { _ = m.connects[0].Process.Kill() }()
	eventually(t, "the guest drops it", func() bool { return sockets(t, m.role.Process.Pid) < with })
	select {
	case <-c.Broken():
	case <-time.After(patience):
		t.Error("the client does not drop it")
	}
}

// TestB6_TwoVersionsUseOneGuest at once: ours, and one that speaks more.
func TestB6_TwoVersionsUseOneGuest(t *testing.T) {
	m := startMachine(t, "serve")
	ours := m.connect(t)
	conn, err := m.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cc, err := grpc.NewClient("passthrough:guest", append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	boot := ours.Hello().BootID
	hello, err := guestv1.NewGuestClient(cc).Hello(t.Context(), &guestv1.HelloRequest{ClientVersion: "v9", ProtocolMin: 1, ProtocolMax: 9})
	if err != nil || hello.GetProtocolMin() != 1 || hello.GetProtocolMax() != 1 || !bytes.Equal(hello.GetBootId(), boot[:]) {
		t.Errorf("%v %v", hello, err)
	}
	if _, err := berthv1.NewProviderClient(cc).MkdirAll(t.Context(), &berthv1.MkdirAllRequest{Workspace: ours.Key(), Path: []byte("from-v9")}); err != nil {
		t.Error(err)
	}
	if r := shell(t.Context(), ours, "ls"); r.stdout != "from-v9\n" {
		t.Errorf("%+v", r)
	}
	// What makes and ends workspaces is nobody's here.
	if _, err := berthv1.NewProviderClient(cc).Destroy(t.Context(), &berthv1.DestroyRequest{Id: "guest"}); status.Code(err) != codes.Unimplemented {
		t.Errorf("destroy: %v", err)
	}
	if _, err := berthv1.NewProviderClient(cc).Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "x"}); status.Code(err) != codes.Unimplemented {
		t.Errorf("configure: %v", err)
	}
}
