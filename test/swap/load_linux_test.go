package swap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// How much is asked of a host while its plugin is swapped.
const (
	loadSwaps   = 50
	loadCallers = 100
	uploadSize  = 64 << 20
	inputSize   = 3 << 20
	readSize    = 8 << 20
)

// TestSwapsUnderLoad: whatever is in flight when a plugin is swapped, no call
// fails, every byte arrives, and no command runs twice or not at all.
func TestSwapsUnderLoad(t *testing.T) {
	for _, plugin := range []string{plain, lasting} {
		t.Run(plugin, func(t *testing.T) {
			b := newBed(t, plugin, func(_ *host.Config, p *host.Provider) { p.StartTimeout = 2 * time.Minute })
			l := &load{bed: b, t: t, stop: make(chan struct{}), swapped: make(chan struct{})}
			base := l.warmUp()
			l.run()
			b.alone(t)
			l.check()
			if st := b.status(); st.Restarts != 0 || st.LastError != "" || st.SwapError != "" || st.InFlight != 0 {
				t.Errorf("%+v", st)
			}
			var now holdings
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if now = hold(t); now.within(base) {
					break
				}
				if time.Now().After(deadline) {
					t.Errorf("%+v is held, %+v was at the beginning", now, base)
					break
				}
			}
			t.Logf("%d calls", l.calls.Load())
		})
	}
}

// hold measures what this process holds.
func hold(t testing.TB) holdings {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	h := holdings{goroutines: runtime.NumGoroutine(), fds: len(fds)}
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		folders, err := filepath.Glob(filepath.Join(base, fmt.Sprintf("berth-run-%d-*", os.Getpid())))
		if err != nil {
			t.Fatal(err)
		}
		h.sockets += len(folders)
	}
	return h
}

// load is all that is going on.
type load struct {
	*bed
	t     *testing.T
	ws    workspace.Workspace // of what is checked in the end
	big   []byte              // the file of that name in it
	stop  chan struct{}
	calls atomic.Int64
	work  sync.WaitGroup

	mu      sync.Mutex
	swapped chan struct{} // closed at the next swap
	ids     []string      // of the commands
	waiting [5]int        // of each kind, how many are in mid-flight
}

// The kinds of calls that are in flight at each swap.
const (
	upload = iota
	command
	create
	pausedReader
	held // one of every caller
)

// across marks a call of a kind as being in mid-flight until the next swap is done.
func (l *load) across(kind int) {
	l.mu.Lock()
	l.waiting[kind]++
	swapped := l.swapped
	l.mu.Unlock()
	select {
	case <-swapped:
	case <-l.stop:
	}
	l.mu.Lock()
	l.waiting[kind]--
	l.mu.Unlock()
}

// warmUp makes the workspace and one call of each kind, so that what is held then
// is all that is held for good.
func (l *load) warmUp() holdings {
	close(l.stop) // nothing waits
	l.ws = l.workspace(l.t)
	l.big = pseudoRandom(readSize, 1)
	if err := l.ws.WriteFile(l.t.Context(), "big", l.big); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Mkdir(gatesOf(l.root), 0o755); err != nil { // from now on creates wait
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = os.RemoveAll(gatesOf(l.root)) })
	l.swap(l.t, versionB)
	l.upload(0)
	l.command(0)
	l.read()
	l.small(0, 0)
	l.hold(0)
	l.create(0)
	l.alone(l.t)
	l.stop = make(chan struct{})
	return hold(l.t)
}

// run swaps with calls of every kind in mid-flight at each swap.
func (l *load) run() {
	for _, again := range []func(n int){
		l.upload, l.command, l.create, func(int) { l.read() },
	} {
		l.work.Go(func() {
			for n := 1; !l.stopped(); n++ {
				again(n)
			}
		})
	}
	for caller := range loadCallers {
		l.work.Go(func() {
			for n := 0; !l.stopped(); n++ {
				l.small(caller+1, n)
				l.hold(caller + 1)
			}
		})
	}
	for i := 0; i < loadSwaps && !l.t.Failed(); i++ {
		poll(l.t, "one of each kind, and one of each caller, to be in mid-flight", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.t.Failed() || l.waiting[upload] > 0 && l.waiting[command] > 0 && l.waiting[create] > 0 && l.waiting[pausedReader] > 0 && l.waiting[held] == loadCallers
		})
		if n := l.status().InFlight; n < loadCallers+4 && !l.t.Failed() {
			l.t.Errorf("swap %d: %d calls are in flight", i, n)
		}
		l.swap(l.t, []string{versionA, versionB}[i%2])
		l.mu.Lock()
		close(l.swapped)
		l.swapped = make(chan struct{})
		l.mu.Unlock()
	}
	close(l.stop)
	l.work.Wait()
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return l.t.Failed()
	}
}

// upload writes one large file, a part of it before a swap and a part after.
func (l *load) upload(n int) {
	ctx := l.t.Context()
	name := fmt.Sprintf("upload-%d", n%2)
	piece := pseudoRandom(uploadSize/64, n)
	w, err := l.ws.Create(ctx, name, workspace.WriteOptions{})
	for i := 0; i < 64 && err == nil; i++ {
		if i == 32 {
			l.across(upload)
		}
		_, err = w.Write(piece)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		l.t.Errorf("upload %d: %v", n, err)
		return
	}
	dir, err := l.ws.WorkingDir(ctx)
	if err != nil {
		l.t.Errorf("upload %d: %v", n, err)
		return
	}
	r, err := os.Open(filepath.Join(dir, name)) // where it lies, for a second way through the plugin is slow
	if err != nil {
		l.t.Errorf("upload %d: %v", n, err)
		return
	}
	defer r.Close()
	got := make([]byte, len(piece))
	for i := range 64 {
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, piece) {
			l.t.Errorf("upload %d: piece %d is not what was written: %v", n, i, err)
			return
		}
	}
	if n, err := r.Read(got); n > 0 || err != io.EOF {
		l.t.Errorf("upload %d: more than was written: %v", n, err)
	}
	l.calls.Add(1)
}

// halves is an input of which the second half comes after a swap.
type halves struct {
	l    *load
	data []byte
	at   int
}

func (h *halves) Read(p []byte) (int, error) {
	if h.at == len(h.data) {
		return 0, io.EOF
	}
	end := len(h.data)
	if half := end / 2; h.at < half {
		end = half
	} else if h.at == half {
		h.l.across(command)
	}
	n := copy(p, h.data[h.at:end])
	h.at += n
	return n, nil
}

// command gives a command its input before and after a swap.
func (l *load) command(n int) {
	id := fmt.Sprintf("command-%d", n)
	l.mu.Lock()
	l.ids = append(l.ids, id)
	l.mu.Unlock()
	input := pseudoRandom(inputSize, n)
	res, err := l.ws.Run(l.t.Context(), workspace.Command{
		Args:  []string{"sh", "-c", `echo "$1" >> ran; cat; echo "$1" >&2; exit 3`, "sh", id},
		Stdin: &halves{l: l, data: input},
	})
	if err != nil || res.ExitCode != 3 || !bytes.Equal(res.Stdout, input) || string(res.Stderr) != id+"\n" {
		l.t.Errorf("%s: %v", id, err)
	}
	l.calls.Add(1)
}

// create makes a workspace, which a swap meets in the middle.
func (l *load) create(n int) {
	ctx := l.t.Context()
	token := workspace.NewToken()
	ws, err := l.Workspace(l.plugin, workspace.WithToken(token))
	if err != nil {
		l.t.Error(err)
		return
	}
	gate := filepath.Join(gatesOf(l.root), token)
	made := make(chan error, 1)
	go func() { made <- ws.WriteFile(ctx, "f", []byte(token)) }()
	for !exists(gate + ".begun") {
		select {
		case err := <-made:
			l.t.Errorf("create %d ended early: %v", n, err)
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
	l.across(create)
	if err := os.WriteFile(gate+".go", nil, 0o600); err != nil {
		l.t.Error(err)
	}
	if err := <-made; err != nil {
		l.t.Errorf("create %d: %v", n, err)
		return
	}
	if got, err := ws.ReadFile(ctx, "f"); err != nil || string(got) != token {
		l.t.Errorf("create %d: %q, %v", n, got, err)
	}
	ref, _ := ws.Ref()
	if err := l.Destroy(ctx, ref); err != nil {
		l.t.Errorf("create %d: destroy: %v", n, err)
	}
	l.calls.Add(1)
}

// read pauses in the middle of a file until a swap is done.
func (l *load) read() {
	r, err := l.ws.Open(l.t.Context(), "big", workspace.ReadOptions{})
	if err != nil {
		l.t.Errorf("open: %v", err)
		return
	}
	defer r.Close()
	got := make([]byte, readSize)
	if _, err := io.ReadFull(r, got[:readSize/8]); err != nil {
		l.t.Errorf("read: %v", err)
	}
	l.across(pausedReader)
	if _, err := io.ReadFull(r, got[readSize/8:]); err != nil || !bytes.Equal(got, l.big) {
		l.t.Errorf("a reader that paused got other bytes, or %v", err)
	}
	l.calls.Add(1)
}

// hold has a call of a caller in flight until a swap is done: an upload that is given
// up then.
func (l *load) hold(caller int) {
	w, err := l.ws.Create(l.t.Context(), heldBy(caller), workspace.WriteOptions{})
	if err == nil {
		_, err = io.WriteString(w, "a part")
	}
	if err != nil {
		l.t.Errorf("caller %d: %v", caller, err)
		return
	}
	l.across(held)
	if err := w.Abort(); err != nil {
		l.t.Errorf("caller %d gives an upload up: %v", caller, err)
	}
	l.calls.Add(1)
}

func heldBy(caller int) string { return fmt.Sprintf("held-%d", caller) }

// small is one of the calls that are made between two swaps.
func (l *load) small(caller, n int) {
	ctx := l.t.Context()
	name := fmt.Sprintf("small/%d", caller)
	content := fmt.Sprintf("%d of %d", n, caller)
	fail := func(what string, err error) {
		if err != nil {
			l.t.Errorf("%s of caller %d: %v", what, caller, err)
		}
	}
	switch (caller + n) % 4 {
	case 0:
		fail("write", l.ws.WriteFile(ctx, name, []byte(content)))
		got, err := l.ws.ReadFile(ctx, name)
		fail("read", err)
		if string(got) != content {
			l.t.Errorf("caller %d wrote %q and read %q", caller, content, got)
		}
	case 1:
		info, err := l.ws.Stat(ctx, "big")
		fail("stat", err)
		if err == nil && info.Size != readSize {
			l.t.Errorf("a size of %d", info.Size)
		}
	case 2:
		l.echo(ctx, fmt.Sprintf("small-%d-%d", caller, n))
	case 3:
		_, err := l.ws.ReadDir(ctx, ".")
		fail("readdir", err)
	}
	l.calls.Add(1)
}

func (l *load) echo(ctx context.Context, id string) {
	l.mu.Lock()
	l.ids = append(l.ids, id)
	l.mu.Unlock()
	res, err := l.ws.Run(ctx, workspace.Command{Args: []string{"sh", "-c", `echo "$1" >> ran; echo "$1"`, "sh", id}})
	if err != nil || res.ExitCode != 0 || strings.TrimSpace(string(res.Stdout)) != id {
		l.t.Errorf("%s: %+v, %v", id, res, err)
	}
}

// check compares what ran with what was to, and looks for what was given up.
func (l *load) check() {
	for caller := range loadCallers + 1 {
		if _, err := l.ws.Stat(l.t.Context(), heldBy(caller)); !errors.Is(err, fs.ErrNotExist) {
			l.t.Errorf("%s: %v", heldBy(caller), err)
		}
	}
	ran, err := l.ws.ReadFile(l.t.Context(), "ran")
	if err != nil {
		l.t.Fatal(err)
	}
	ranOnce(l.t, ran, l.ids)
}
