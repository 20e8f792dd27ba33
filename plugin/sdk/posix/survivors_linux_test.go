package posix

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSurvivors is of a process that the kernel does not let this one kill. It is
// the kernel's answer that is made up: only root could make such a process.
func TestSurvivors(t *testing.T) {
	cmd := exec.Command("sleep", "987")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	asked := map[unix.Signal]int{}
	children := tree{root: os.Getpid(), kill: func(p proc, sig unix.Signal) error {
		if p.pid == cmd.Process.Pid {
			asked[sig]++
		}
		return unix.EPERM
	}}
	survivors := children.survivors(children.destroy())
	if want := fmt.Sprintf("process %d (sleep): operation not permitted", cmd.Process.Pid); !strings.Contains(survivors, want) {
		t.Errorf("survivors %q, want %q", survivors, want)
	}
	if asked[unix.SIGSTOP] == 0 || asked[unix.SIGKILL] != 1 {
		t.Errorf("signals: %v", asked)
	}
}

func TestKillProcIsExact(t *testing.T) {
	p, err := readProc(os.Getpid())
	if err != nil || p.ppid != os.Getppid() {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := killProc(p, 0); err != nil {
		t.Errorf("the process itself: %v", err)
	}
	p.started += "1" // as if another had got its pid
	if err := killProc(p, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("another process with its pid: %v, want ESRCH", err)
	}
}

func TestParseStat(t *testing.T) {
	tail := strings.Repeat(" 0", 17) + " 4711 0\n"
	for name, stat := range map[string]string{"sleep": "7 (sleep) S 3" + tail, "a) Z 1 (": "7 (a) Z 1 () S 3" + tail, "": "7 () S 3" + tail} {
		p, err := parseStat([]byte(stat))
		if want := (proc{pid: 7, ppid: 3, state: 'S', name: name, started: "4711"}); err != nil || p != want {
			t.Errorf("%q: %+v, %v", stat, p, err)
		}
	}
	for _, stat := range []string{"", "7", "7 (x", "7 x) S", "(x) S 3", "x (x) S 3" + tail, "7 (x) S y" + tail} {
		if p, err := parseStat([]byte(stat)); err == nil {
			t.Errorf("%q: %+v", stat, p)
		}
	}
}

// FuzzDecode is of what an old helper or a broken one may send.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add(appendStrings(appendString([]byte{byte(kindStart), 2}, "dir"), []string{"a", "b"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decoder{buf: data}
		_, _, _, list := d.byte(), d.varint(), d.string(), d.strings()
		if len(list) > len(data) {
			t.Errorf("%d strings out of %d bytes", len(list), len(data))
		}
	})
}
