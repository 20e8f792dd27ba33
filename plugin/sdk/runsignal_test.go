package sdk

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestSignals(t *testing.T) {
	process := newFakeProcess()
	process.onSignal = func(sig workspace.Signal) error {
		switch sig {
		case "USR2":
			return os.ErrProcessDone
		case "HUP":
			panic("hup")
		}
		return nil
	}
	client := connect(t, quiet(pluginOf(providing(starting(process)))))
	if _, err := client.Configure(t.Context(), &berthv1.ConfigureRequest{Provider: "p"}); err != nil {
		t.Fatal(err)
	}
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	names := []string{"TERM", "USR2", "HUP", "", "SIG TERM", "term", "RTMIN+3"}
	for i, name := range names {
		call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: name, Sequence: int64(i)}}})
	}
	call.until("the answers", func() bool { return len(call.signals) == len(names) })
	for i, check := range []func(error) bool{
		func(err error) bool { return err == nil },
		func(err error) bool { return errors.Is(err, os.ErrProcessDone) },
		func(err error) bool { return err != nil && strings.Contains(err.Error(), "panic") },
		func(err error) bool { return errors.Is(err, workspace.ErrInvalid) },
		func(err error) bool { return errors.Is(err, workspace.ErrInvalid) },
		func(err error) bool { return errors.Is(err, workspace.ErrInvalid) },
		func(err error) bool { return err == nil },
	} {
		if !check(call.signals[int64(i)]) {
			t.Errorf("signal %q: %v", names[i], call.signals[int64(i)])
		}
	}
	process.exit(0, nil)
	if _, err := call.wait(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(process.signals); got != "[TERM USR2 HUP RTMIN+3]" {
		t.Errorf("delivered %s", got)
	}
}

func TestSignalsThatAreNotDelivered(t *testing.T) {
	process := newFakeProcess()
	release := make(chan struct{})
	process.onSignal = func(workspace.Signal) error { <-release; return nil }
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	for i := range int64(maxSignals + 10) {
		call.send(&berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: "TERM", Sequence: i}}})
	}
	// All but those that wait and the one under way.
	call.until("the refusals", func() bool { return len(call.signals) >= 9 })
	for sequence, err := range call.signals {
		if err == nil {
			t.Errorf("signal %d was delivered", sequence)
		}
	}
	close(release)
	process.exit(0, nil)
	if _, err := call.wait(); err != nil {
		t.Error(err)
	}
}

// A host that sends signals and reads nothing costs no memory without end.
func TestSignalsWhoseResultsAreNotTaken(t *testing.T) {
	process := newFakeProcess()
	client := serveProvider(t, providing(starting(process)))
	call := startRun(t, t.Context(), client, &berthv1.RunStart{})
	call.until("the start", func() bool { return call.started })
	name := strings.Repeat("x", 200)
	for i := range int64(20 * maxResults) {
		m := &berthv1.RunRequest{Message: &berthv1.RunRequest_Signal{Signal: &berthv1.RunSignal{Name: name, Sequence: i}}}
		if call.stream.Send(m) != nil { // it is stopped already
			break
		}
	}
	if _, err := call.wait(); !errors.Is(err, workspace.ErrInvalid) {
		t.Errorf("the run ended with %v, want ErrInvalid", err)
	}
	for sequence, err := range call.signals {
		if len(err.Error()) > 190 {
			t.Fatalf("the result of signal %d has %d bytes", sequence, len(err.Error()))
		}
	}
}
