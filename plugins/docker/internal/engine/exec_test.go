package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-dev/berth/shared/workspace"
)

func startExec(t *testing.T, e *Engine) *Exec {
	t.Helper()
	x, err := e.Exec(t.Context(), "c", ExecOptions{Cmd: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func TestAnExitCodeThatIsNotToldIsNot0(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []string // the last is repeated
		once    error    // of the first question
		code    int
		err     error
	}{
		{name: "told", answers: []string{`{"Running":false,"ExitCode":7}`}, code: 7},
		{name: "zero", answers: []string{`{"Running":false,"ExitCode":0}`}},
		{name: "null twice", answers: []string{`{"Running":false,"ExitCode":null}`, `{"Running":false,"ExitCode":null}`, `{"Running":false,"ExitCode":7}`}, once: ErrRunning, code: 7},
		{name: "running, null, told", answers: []string{`{"Running":true,"ExitCode":null}`, `{"Running":false}`, `{"Running":false,"ExitCode":7}`}, once: ErrRunning, code: 7},
		{name: "running with a zero", answers: []string{`{"Running":true,"ExitCode":0}`, `{"Running":false,"ExitCode":7}`}, once: ErrRunning, code: 7},
		{name: "never told", answers: []string{`{"Running":false,"ExitCode":null}`}, once: ErrRunning, err: ErrExitUnknown},
		{name: "an empty object", answers: []string{`{}`}, once: ErrRunning, err: ErrExitUnknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			var asked atomic.Int32
			f.route("/exec/x1/json", func(w http.ResponseWriter, r *http.Request) {
				n := min(int(asked.Add(1)), len(test.answers))
				says(http.StatusOK, test.answers[n-1])(w, r)
			})
			e := openFake(t, f)
			e.exitLimit = 20 * time.Millisecond
			x := &Exec{engine: e, id: "x1"}
			code, err := x.ExitCode(t.Context())
			if !errors.Is(err, test.once) || (test.once == nil && code != test.code) {
				t.Errorf("at first it is %d, %v", code, err)
			}
			asked.Store(0)
			code, err = x.Wait(t.Context())
			if code != test.code || !errors.Is(err, test.err) {
				t.Errorf("in the end it is %d, %v", code, err)
			}
		})
	}
}

func TestAnExitCodeThatIsNoAnswerOfAnEngine(t *testing.T) {
	f := newFake()
	f.route("/exec/x1/json", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	x := &Exec{engine: openFake(t, f), id: "x1"}
	if _, err := x.Wait(t.Context()); err == nil || errors.Is(err, ErrExitUnknown) {
		t.Errorf("it is %v", err)
	}
}

func TestTheInputEndsAndTheOutputGoesOn(t *testing.T) {
	f := newFake()
	f.execs(t, echo)
	x := startExec(t, openFake(t, f))
	if _, err := x.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := x.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := x.Copy(&stdout, &stderr); err != nil || stdout.String() != "hello" || stderr.Len() > 0 {
		t.Errorf("%q, %q, %v", stdout.String(), stderr.String(), err)
	}
}

// sends makes the fake send these bytes as an exec's outputs and end the stream.
func sends(t *testing.T, f *fake, pieces ...[]byte) {
	f.execs(t, func(conn net.Conn, _ *bufio.Reader) {
		for _, piece := range pieces {
			_, _ = conn.Write(piece)
		}
	})
}

func TestOutputsAreTakenApart(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 1<<14) // 256 KiB in one frame
	var mixed []byte
	for i := range 1000 {
		mixed = append(mixed, frame(stdcopy.Stdout, fmt.Sprint(i, ","))...)
		mixed = append(mixed, frame(stdcopy.Stderr, fmt.Sprint(-i, ","))...)
	}
	var out, errs strings.Builder
	for i := range 1000 {
		fmt.Fprint(&out, i, ",")
		fmt.Fprint(&errs, -i, ",")
	}
	var bytewise [][]byte
	for _, b := range append(frame(stdcopy.Stdout, "one"), frame(stdcopy.Stderr, "two")...) {
		bytewise = append(bytewise, []byte{b})
	}
	truncated := frame(stdcopy.Stdout, "truncated")
	huge := frame(stdcopy.Stdout, "x")
	copy(huge[lengthAt:], []byte{0xff, 0xff, 0xff, 0xff})
	for _, test := range []struct {
		name           string
		pieces         [][]byte
		stdout, stderr string
		text           string // of the error
	}{
		{name: "nothing"},
		{name: "many frames", pieces: [][]byte{mixed}, stdout: out.String(), stderr: errs.String()},
		{name: "a byte at a time", pieces: bytewise, stdout: "one", stderr: "two"},
		{name: "a long frame", pieces: [][]byte{frame(stdcopy.Stdout, long)}, stdout: long},
		{name: "empty frames", pieces: [][]byte{frame(stdcopy.Stdout, ""), frame(stdcopy.Stderr, ""), frame(stdcopy.Stdout, "x")}, stdout: "x"},
		{name: "the end within a header", pieces: [][]byte{frame(stdcopy.Stdout, "x"), truncated[:3]}, stdout: "x", text: "unexpected EOF"},
		{name: "the end after a header", pieces: [][]byte{truncated[:frameHeader]}, text: "unexpected EOF"},
		{name: "the end within a frame", pieces: [][]byte{truncated[:frameHeader+3]}, stdout: "tru", text: "unexpected EOF"},
		{name: "a frame that says that it is huge", pieces: [][]byte{huge}, stdout: "x", text: "unexpected EOF"},
		{name: "an unknown stream", pieces: [][]byte{frame(4, "x")}, text: "unknown stream 4"},
		{name: "an error of the engine", pieces: [][]byte{frame(stdcopy.Stdout, "x"), frame(stdcopy.Systemerr, "the disk is on fire")}, stdout: "x", text: "the disk is on fire"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			sends(t, f, test.pieces...)
			e := openFake(t, f)
			check := func(stdout, stderr string, err error) {
				t.Helper()
				if stdout != test.stdout || stderr != test.stderr {
					t.Errorf("%d and %d bytes; want %d and %d", len(stdout), len(stderr), len(test.stdout), len(test.stderr))
				}
				if (err == nil) != (test.text == "") {
					t.Errorf("it is %v", err)
				}
				if err != nil {
					wantTexts(t, err, test.text)
				}
			}
			var stdout, stderr bytes.Buffer
			err := startExec(t, e).Copy(&stdout, &stderr)
			check(stdout.String(), stderr.String(), err)
			if err != nil && !errors.Is(err, workspace.ErrTransient) {
				t.Errorf("%v is not transient", err)
			}

			conn := startExec(t, e).Conn()
			content, err := io.ReadAll(conn)
			tail := test.stderr[max(len(test.stderr)-stderrTail, 0):]
			if conn.Stderr() != tail {
				t.Errorf("the end of stderr is %d bytes; want %d", len(conn.Stderr()), len(tail))
			}
			check(string(content), test.stderr, err)
		})
	}
}

func TestAConnectionGivesNoMoreThanIsAskedFor(t *testing.T) {
	f := newFake()
	sends(t, f, frame(stdcopy.Stdout, "abc"), frame(stdcopy.Stderr, "!"), frame(stdcopy.Stdout, "defg"))
	conn := startExec(t, openFake(t, f)).Conn()
	var got []string
	buf := make([]byte, 2)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		got = append(got, string(buf[:n]))
	}
	if strings.Join(got, "") != "abcdefg" {
		t.Errorf("it is %q", got)
	}
	if n, err := conn.Read(nil); n != 0 || err != nil {
		t.Errorf("a read of nothing: %d, %v", n, err)
	}
}

var errWriter = errors.New("the writer is full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errWriter }

func TestAWritersErrorIsItsOwn(t *testing.T) {
	f := newFake()
	sends(t, f, frame(stdcopy.Stdout, "x"))
	err := startExec(t, openFake(t, f)).Copy(failing{}, failing{})
	if !errors.Is(err, errWriter) || errors.Is(err, workspace.ErrTransient) {
		t.Errorf("it is %v", err)
	}
}

func TestAStreamThatIsRefusedTellsTheReason(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
		is     func(error) bool
	}{
		{name: "as an engine does", status: http.StatusConflict, body: `{"message":"container c is not running"}`, is: errdefs.IsConflict},
		{name: "as a proxy does", status: http.StatusNotFound, body: "container c is not running", is: errdefs.IsNotFound},
		{name: "as if it were fine", status: http.StatusOK, body: "container c is not running"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			f.route("/containers/c/exec", says(http.StatusCreated, `{"Id":"x1"}`))
			f.route("/exec/x1/start", says(test.status, test.body))
			_, err := openFake(t, f).Exec(t.Context(), "c", ExecOptions{Cmd: []string{"true"}})
			wantTexts(t, err, "container c is not running")
			if test.is != nil && !test.is(err) {
				t.Errorf("the kind of %v is lost", err)
			}
		})
	}
}

func TestCloseUnblocksReadingAndWriting(t *testing.T) {
	f := newFake()
	done := make(chan struct{})
	defer close(done)
	f.execs(t, func(net.Conn, *bufio.Reader) { <-done }) // it neither reads nor writes
	x := startExec(t, openFake(t, f))
	conn := x.Conn()
	errs := make(chan error, 2)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		errs <- err
	}()
	go func() {
		for {
			if _, err := conn.Write(make([]byte, 1<<16)); err != nil {
				errs <- err
				return
			}
		}
	}()
	time.AfterFunc(20*time.Millisecond, func() { conn.Close() })
	within(t, func() {
		for range 2 {
			if err := <-errs; err == nil {
				t.Error("no error after Close")
			}
		}
	})
	if err := x.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestDeadlinesOfAConnection(t *testing.T) {
	f := newFake()
	f.execs(t, func(conn net.Conn, in *bufio.Reader) {
		// Half a frame, and the rest when the other side asks.
		content := frame(stdcopy.Stdout, "hello")
		_, _ = conn.Write(content[:frameHeader-2])
		_, _ = in.ReadByte()
		_, _ = conn.Write(content[frameHeader-2:])
		_, _ = in.ReadByte()
	})
	conn := startExec(t, openFake(t, f)).Conn()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 8)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("it is %v", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8)
	if n, err := io.ReadAtLeast(conn, buf, 5); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("after the deadline: %q, %v", buf[:n], err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(append(frame(stdcopy.Stdout, "one"), frame(stdcopy.Stderr, "two")...), 3)
	f.Add(frame(stdcopy.Systemerr, "oops"), 1)
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'}, 100)
	f.Fuzz(func(t *testing.T, content []byte, limit int) {
		limit = max(1, limit%(2*frameBuffer))
		in := frames{r: bufio.NewReaderSize(bytes.NewReader(content), frameBuffer)}
		total := 0
		for {
			stream, piece, err := in.next(limit)
			if err != nil {
				return
			}
			if len(piece) == 0 || len(piece) > limit || stream > stdcopy.Systemerr {
				t.Fatalf("a piece of %d bytes of stream %d; the limit is %d", len(piece), stream, limit)
			}
			if stream == stdcopy.Systemerr {
				if err := in.engineError(piece); len(err.Error()) > 4*engineTextLimit+100 {
					t.Fatalf("an error of %d bytes", len(err.Error()))
				}
			}
			if total += len(piece); total > len(content) {
				t.Fatal("more comes out than went in")
			}
		}
	})
}
