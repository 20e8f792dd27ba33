package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/plugin/sdk/guest"
)

// frames of HTTP/2: an empty SETTINGS and its acknowledgement, with which a real
// server begins.
const (
	settings    = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	settingsAck = "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
)

// hostile answers with given bytes, whatever it is asked, and then ends or falls
// silent.
func hostile(t testing.TB, answer []byte, ends bool) (net.Conn, func()) {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := io.CopyN(io.Discard, theirs, 24); err != nil { // the preface
			return
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, theirs)
		}()
		_, _ = theirs.Write(answer)
		if ends {
			_ = theirs.Close()
		}
		<-read
	}()
	return ours, func() {
		_ = theirs.Close()
		<-done
	}
}

// meet connects to it, and must fail in bounded time.
func meet(t testing.TB, answer []byte, ends bool) error {
	t.Helper()
	conn, end := hostile(t, answer, ends)
	defer end()
	limit := 300 * time.Millisecond // silence ends when the caller gives up
	if ends {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := guest.Connect(ctx, conn, "test")
	if err == nil {
		_ = c.Close()
		t.Fatalf("%q was taken for a guest", answer)
	}
	if ends && ctx.Err() != nil {
		t.Errorf("%q was listened to for %v after its end", answer, limit)
	}
	if len(err.Error()) > 8<<10 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	if _, err := conn.Write(nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the stream is left open: %v", err)
	}
	return err
}

var hostileAnswers = map[string]string{
	"nothing":             "",
	"text":                "OCI runtime exec failed: exec failed: no such file or directory\n",
	"HTTP/1":              "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
	"a large frame":       "\xff\xff\xff\x00\x00\x00\x00\x00\x01" + strings.Repeat("x", 100_000),
	"settings alone":      settings + settingsAck,
	"a cut frame":         settings + settingsAck + "\x00\x00\x10\x01\x04\x00\x00\x00\x01ab",
	"go away":             settings + settingsAck + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b",
	"a reset":             settings + settingsAck + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x02",
	"bad headers":         settings + settingsAck + "\x00\x00\x04\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff",
	"data without header": settings + settingsAck + "\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00",
	"even streams":        settings + settingsAck + "\x00\x00\x01\x01\x05\x00\x00\x00\x02\x88",
	"bad window":          settings + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	"headers alone":       settings + settingsAck + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88",
	"no grpc":             settings + settingsAck + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88",
	"a flood of settings": strings.Repeat(settings, 10_000),
	"a flood of pings":    settings + strings.Repeat("\x00\x00\x08\x06\x00\x00\x00\x00\x00abcdefgh", 10_000),
}

func TestWhatIsNoGuestIsAnError(t *testing.T) {
	for name, answer := range hostileAnswers {
		for what, ends := range map[string]bool{"ends": true, "falls silent": false} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				err := meet(t, []byte(answer), ends)
				if !strings.HasPrefix(err.Error(), "greeting the guest: ") {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

func FuzzWhatAGuestSends(f *testing.F) {
	for _, answer := range hostileAnswers {
		if len(answer) < 1000 {
			f.Add([]byte(answer))
		}
	}
	f.Add(bytes.Repeat([]byte{0}, 64))
	f.Fuzz(func(t *testing.T, answer []byte) {
		_ = meet(t, answer, true)
		_ = meet(t, append([]byte(settings+settingsAck), answer...), true)
	})
}
