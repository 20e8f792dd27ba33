//go:build docker

package docker_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/test/docker/enginetest"
	"github.com/berth-dev/berth/test/internal/binaries"
)

const (
	// envPodman says what is tried on Podman: all that is tried on Docker if it is
	// "all", or what a pattern of -run matches. Empty is podmanShort.
	envPodman = "BERTH_TEST_PODMAN"
	// podmanShort is the contract with the guest as init, and the life of workspaces.
	podmanShort = "^Test(MainJob|Contract_InitBusyboxAsUser|Create_.*|WorkDir_.*|Foreign_.*|Placement_.*)$"
)

// differences are the tests that Podman fails for reasons of its own, each of which
// docs/providers/docker.md tells. One that it passes is an error too, unless it is a
// race.
var differences = []struct {
	test   string
	says   string // what each line of the failure matches
	reason string
	race   bool
}{
	{"TestCreate_IsSafeAndAsConfigured", "not so: its log cannot fill a disk", "the limit of a log is kept and not told", false},
	{"TestCreate_ThatFailsLeavesNothingAndSaysWhy/a_runtime_that_the_engine_has_not", "error <nil>, want ErrInvalid|it left ", "oci_runtime is ignored", false},
	{"TestWorkDir_InMemoryIsAnotherWorkspaceAfterAStop", "echo lost >f && stat -c %u", "a folder in memory belongs to root, and is open to all", false},
	{"TestDestroy_RemovesTheVolumeAndOnlyOurs", "want a container and a volume", "volumes get no labels", false},
	{"TestGuestVolume_IsFilledOnceByManyAtOnce", `the volume's labels are map\[\]`, "volumes get no labels", false},
	{"TestFailure_IsToldApartAndAtOnce/removed_with_guest_init", "exit code 137", removedIsKilled, true},
	{"TestFailure_IsToldApartAndAtOnce/removed_with_guest_exec", "exit code 137", removedIsKilled, true},
	{"TestFailure_IsToldApartAndAtOnce/removed_with_guest_off", "exit code 137", removedIsKilled, true},
	{"TestStop_WhileCallsCome", "container state improper|calls worked", "a stop and a start at once are refused, not put in order", true},
	{"TestContract_WithoutGuestBusyboxReadOnly/C2_UnreadStdinDelaysNothing", "connection reset by peer", inputResets, true},
	{"TestContract_WithoutGuest/C2_UnreadStdinDelaysNothing", "connection reset by peer", inputResets, true},
}

const (
	removedIsKilled = "a container that is being removed is shown as one that was killed"
	inputResets     = "the stream of an exec whose input was not read is reset at its end"
)

// failure is a line with which a test tells of itself.
var failure = regexp.MustCompile(`^\s+[a-z_]+\.go:[0-9]+: `)

// outcome is what became of one test.
type outcome struct {
	action string // pass, fail or skip; empty while it runs
	text   strings.Builder
	took   time.Duration
	nested bool // one of its subtests failed
}

// TestPodman runs tests of this package once more, on Podman: they pass, but for the
// differences. It takes long, and so stands in the file whose tests begin first.
func TestPodman(t *testing.T) {
	t.Parallel()
	address := enginetest.Podman(t)
	if os.Getenv("DOCKER_HOST") == address {
		t.Fatal("this is Podman already: run it where DOCKER_HOST leads to another engine, or the tests themselves")
	}
	args := []string{"-test.v=test2json", "-test.parallel=4", "-test.timeout=30m", "-test.skip=^TestPodman$"}
	switch pattern := os.Getenv(envPodman); pattern {
	case "all":
	case "":
		args = append(args, "-test.run="+podmanShort)
	default:
		args = append(args, "-test.run="+pattern)
	}
	outcomes, order := runOn(t, address, args)
	declared := map[string]bool{}
	for _, d := range differences {
		top, _, _ := strings.Cut(d.test, "/")
		if _, ran := outcomes[top]; !ran {
			continue
		}
		declared[d.test] = true
		o := outcomes[d.test]
		switch {
		case o == nil:
			t.Errorf("%s, which is said to differ (%s), is no test", d.test, d.reason)
		case o.action == "pass" && d.race:
		case o.action != "fail":
			t.Errorf("%s, which is said to differ (%s): %s", d.test, d.reason, o.action)
		default:
			says := regexp.MustCompile(d.says)
			for line := range strings.Lines(o.text.String()) {
				if failure.MatchString(line) && !says.MatchString(line) {
					t.Errorf("%s differs otherwise than is said (%s): %s", d.test, d.reason, line)
				}
			}
			t.Logf("%s differs as is said: %s", d.test, d.reason)
		}
	}
	for _, name := range order {
		o := outcomes[name]
		switch {
		case o.nested || declared[name]:
		case o.action == "":
			t.Errorf("%s has not ended:\n%s", name, o.text.String())
		case o.action == "fail":
			t.Errorf("%s:\n%s", name, o.text.String())
		case !strings.Contains(name, "/"):
			t.Logf("%s: %s (%v)", name, o.action, o.took)
		}
	}
}

// runOn runs this program's tests on another engine.
func runOn(t *testing.T, address string, args []string) (outcomes map[string]*outcome, order []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "test2json", "-t", self}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+address, "DOCKER_CONTEXT=", binaries.EnvBin+"="+bin)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	outcomes, order, parseErr := parseOutcomes(out)
	err = cmd.Wait()
	var status *exec.ExitError
	failed := false
	for _, o := range outcomes {
		failed = failed || o.action == "fail"
	}
	if parseErr != nil || err != nil && (!errors.As(err, &status) || !failed) || len(order) == 0 {
		t.Errorf("the tests on Podman: %v %v\n%s", err, parseErr, problems.String())
	}
	return outcomes, order
}

// parseOutcomes reads what test2json writes, to its end.
func parseOutcomes(r io.Reader) (outcomes map[string]*outcome, order []string, err error) {
	outcomes = map[string]*outcome{}
	lines := bufio.NewReader(r)
	for {
		line, readErr := lines.ReadBytes('\n')
		var event struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if len(line) > 0 {
			if parseErr := json.Unmarshal(line, &event); parseErr != nil {
				err = errors.Join(err, parseErr)
			}
		}
		if event.Test != "" {
			o := outcomes[event.Test]
			if o == nil {
				o = &outcome{}
				outcomes[event.Test], order = o, append(order, event.Test)
			}
			o.text.WriteString(event.Output)
			switch event.Action {
			case "fail":
				for i, c := range event.Test {
					if c == '/' && outcomes[event.Test[:i]] != nil {
						outcomes[event.Test[:i]].nested = true
					}
				}
				fallthrough
			case "pass", "skip":
				o.action, o.took = event.Action, time.Duration(event.Elapsed*float64(time.Second))
			}
		}
		if errors.Is(readErr, io.EOF) {
			return outcomes, order, err
		}
		if readErr != nil {
			return outcomes, order, errors.Join(err, readErr)
		}
	}
}
