package posix

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalsChangeNoAnswer is of looks at a descriptor while signals come: one
// interrupts even a look that does not wait, and says nothing about what there is.
func TestSignalsChangeNoAnswer(t *testing.T) {
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	defer ours.close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	runtime.LockOSThread() // the one that gets the signals
	defer runtime.UnlockOSThread()
	thread, stop, stopped := unix.Gettid(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default: // as the runtime does to have its goroutines take turns
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 100_000 {
		if !ours.alive() {
			t.Fatal("a connection whose other side is there is taken for dead")
		}
		if pipeHeld(int(r.Fd())) {
			t.Fatal("a pipe that nobody can write to is taken for held")
		}
	}
}
