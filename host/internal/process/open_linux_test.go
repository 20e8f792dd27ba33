package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestOpenSaysWhatIsExecuted(t *testing.T) {
	cfg := testConfig(t, "good")
	executed := cfg.Path
	cfg.Path = "/as/it/was/found"
	var released atomic.Int32
	cfg.Open = func() (string, func(), error) { return executed, func() { released.Add(1) }, nil }
	p := start(t, cfg)
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID())); err != nil || exe != executed {
		t.Errorf("%s was executed, %v", exe, err)
	}
	mustDo(t, p, "ping")
	if n := released.Load(); n != 0 {
		t.Errorf("released %d times while it runs", n)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.Finished()
	if n := released.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
}

func TestNothingIsOpened(t *testing.T) {
	cfg := testConfig(t, "good")
	refused := fmt.Errorf("the digest is another one: %w", fs.ErrPermission)
	cfg.Open = func() (string, func(), error) { return "", nil, refused }
	p, err := Start(t.Context(), cfg)
	if err == nil {
		p.Close()
		t.Fatal("started")
	}
	// Not what the operating system says of a file that it cannot execute.
	if !errors.Is(err, refused) || !strings.Contains(err.Error(), "the digest is another one") || strings.Contains(err.Error(), "executable") {
		t.Error(err)
	}
}

func TestReleasedAlsoIfItCannotBeExecuted(t *testing.T) {
	cfg := testConfig(t, "good")
	copied := file(t, "once upon a time", 0o755)
	released := 0
	cfg.Open = func() (string, func(), error) { return copied, func() { released++ }, nil }
	p, err := Start(t.Context(), cfg)
	if err == nil {
		p.Close()
		t.Fatal("started")
	}
	if !errors.Is(err, syscall.ENOEXEC) || !strings.Contains(err.Error(), copied) || released != 1 {
		t.Errorf("released %d times, %v", released, err)
	}
}

// A binary that somebody is writing is tried again for a moment, and no longer.
func TestBusyFileIsNotWaitedForForever(t *testing.T) {
	content, err := os.ReadFile(plugins.Path("good"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, "good")
	cfg.Path = file(t, string(content), 0o755)
	writer, err := os.OpenFile(cfg.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	p, err := Start(t.Context(), cfg)
	if err == nil {
		p.Close()
		t.Fatal("started while it was being written")
	}
	if !errors.Is(err, syscall.ETXTBSY) || !strings.Contains(err.Error(), "is open for writing") {
		t.Error(err)
	}
}
