package sdk

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/shared/wire/berthv1"
)

// describeOver asks what is at the other end of a connection.
func describeOver(t *testing.T, conn net.Conn) error {
	t.Helper()
	client, err := grpc.NewClient("passthrough:socket", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if conn == nil {
				return nil, errors.New("there was one connection only")
			}
			once := conn
			conn = nil
			return once, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = berthv1.NewProviderClient(client).Describe(t.Context(), &berthv1.DescribeRequest{})
	return err
}

// A process of another user that has found its way to the socket is not answered.
func TestServeRefusesOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to be another user takes root")
	}
	p := startPlugin(t, "plain")
	found, err := filepath.Glob(filepath.Join(p.sockets, "plugin*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("sockets %q, %v", found, err)
	}
	socket := found[0]
	if _, err := dialAs(t, 65534, socket); !errors.Is(err, syscall.EACCES) {
		t.Errorf("in a folder of this user's alone: %v", err)
	}
	for _, path := range []string{p.sockets, socket} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := dialAs(t, 65534, socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := describeOver(t, conn); status.Code(err) != codes.Unavailable {
		t.Errorf("another user was answered: %v", err)
	}
	eventually(t, "it is in the log", func() bool {
		return strings.Contains(p.stderr.String(), "a client was refused") && strings.Contains(p.stderr.String(), "belongs to uid 65534")
	})
	if conn, err = net.Dial("unix", socket); err != nil {
		t.Fatal(err)
	}
	if err := describeOver(t, conn); err != nil {
		t.Errorf("this user: %v", err)
	}
}

// dialAs connects as another user: a socket tells who had it made, which is a thread's
// own matter on Linux.
func dialAs(t *testing.T, uid int, socket string) (conn net.Conn, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		keep := ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			err = errno
			return
		}
		conn, err = net.Dial("unix", socket)
	}()
	<-done
	return conn, err
}

// TestPeerCredentials is of a server that takes another user than this one for its own.
func TestPeerCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		uid  int
		code codes.Code
	}{
		"this user":    {os.Geteuid(), codes.Unimplemented},
		"another user": {os.Geteuid() + 1, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "sdk") //nolint:usetesting // short: it is for a socket
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			socket := filepath.Join(dir, "s")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer(grpc.Creds(peerCredentials{insecure.NewCredentials(), test.uid, hclog.NewNullLogger()}))
			defer server.Stop()
			go func() { _ = server.Serve(listener) }()
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			if err := describeOver(t, conn); status.Code(err) != test.code {
				t.Error(err)
			}
		})
	}
}
