package workspace_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berth-dev/berth/shared/workspace"
)

func TestCommandValidate(t *testing.T) {
	argv := []string{"true"}
	for _, tt := range []struct {
		name string
		cmd  workspace.Command
		why  string
	}{
		{"argv", workspace.Command{Args: argv}, ""},
		{"empty arguments", workspace.Command{Args: []string{"x", "", ""}}, ""},
		{"arguments of any bytes", workspace.Command{Args: []string{"a\xff\n", "\x01"}}, ""},
		{"script", workspace.Command{Script: "true"}, ""},
		{"script of spaces", workspace.Command{Script: " "}, ""},
		{"dir of any bytes", workspace.Command{Args: argv, Dir: "a\xff"}, ""},
		{"env of any bytes", workspace.Command{Args: argv, Env: map[string]string{"A\xff B": "v\xff\n=", "E": ""}}, ""},
		{"no timeout", workspace.Command{Args: argv, Timeout: 0}, ""},
		{"the shortest timeout", workspace.Command{Args: argv, Timeout: 1}, ""},
		{"the longest timeout", workspace.Command{Args: argv, Timeout: math.MaxInt64}, ""},
		{"an output limit", workspace.Command{Args: argv, OutputLimit: 1}, ""},
		{"no output limit, streamed", workspace.Command{Args: argv, OutputLimit: workspace.NoOutputLimit, Stdout: io.Discard, Stderr: io.Discard}, ""},
		{"stdin and detached", workspace.Command{Args: argv, Stdin: strings.NewReader("x"), Detached: true}, ""},
		{"the longest argument", workspace.Command{Args: []string{"x", strings.Repeat("a", 128<<10-1)}}, ""},

		{"nothing", workspace.Command{}, "neither Args nor Script"},
		{"an empty argv", workspace.Command{Args: []string{}}, "neither Args nor Script"},
		{"both", workspace.Command{Args: argv, Script: "true"}, "both Args and Script"},
		{"an empty program", workspace.Command{Args: []string{"", "x"}}, "program's name is empty"},
		{"NUL in the program", workspace.Command{Args: []string{"a\x00b"}}, "argument 0 holds a NUL"},
		{"NUL in an argument", workspace.Command{Args: []string{"a", "b", "\x00"}}, "argument 2 holds a NUL"},
		{"NUL in the script", workspace.Command{Script: "echo \x00"}, "script holds a NUL"},
		{"NUL in dir", workspace.Command{Args: argv, Dir: "a\x00"}, `Dir "a\x00" holds a NUL`},
		{"a negative timeout", workspace.Command{Args: argv, Timeout: -time.Second}, "timeout -1s is negative"},
		{"the least timeout", workspace.Command{Args: argv, Timeout: math.MinInt64}, "is negative"},
		{"a negative output limit", workspace.Command{Args: argv, OutputLimit: -2}, "output limit -2 is negative"},
		{"no output limit, collected", workspace.Command{Args: argv, OutputLimit: workspace.NoOutputLimit}, "both streamed"},
		{"no output limit, half streamed", workspace.Command{Args: argv, OutputLimit: workspace.NoOutputLimit, Stdout: io.Discard}, "both streamed"},
		{"an env name that is empty", workspace.Command{Args: argv, Env: map[string]string{"": "v"}}, "without a name"},
		{"an env name with =", workspace.Command{Args: argv, Env: map[string]string{"A=B": "v"}}, `begins with "A" holds =`},
		{"an env name with NUL", workspace.Command{Args: argv, Env: map[string]string{"A\x00": "v"}}, "holds = or a NUL"},
		{"an env value with NUL", workspace.Command{Args: argv, Env: map[string]string{"A": "v\x00"}}, `the value of "A" holds a NUL`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cmd.Validate()
			if tt.why == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			checkInvalid(t, tt.name, err, tt.why)
			if errors.Is(err, syscall.E2BIG) {
				t.Errorf("%v is E2BIG", err)
			}
		})
	}
}

// What execve refuses everywhere is refused alike, before anything starts
// (contract C1).
func TestC1_TooLongIsE2BIG(t *testing.T) {
	long := strings.Repeat("a", 128<<10)
	many := make([]string, 100)
	env := map[string]string{}
	for i := range many {
		many[i] = long[1:]
		env[fmt.Sprint("V", i)] = long[:100<<10]
	}
	pointers := make([]string, 800_000) // 7.2 MB of NULs and pointers
	pointers[0] = "true"
	for _, tt := range []struct {
		name string
		cmd  workspace.Command
		why  string
	}{
		{"an argument", workspace.Command{Args: []string{"x", long}}, "argument 1 has 131072 bytes"},
		{"an argument of 5 MiB", workspace.Command{Args: []string{"x", strings.Repeat("a", 5<<20)}}, "argument 1"},
		{"the program", workspace.Command{Args: []string{long}}, "argument 0"},
		{"the script", workspace.Command{Script: long}, "the script"},
		{"a variable", workspace.Command{Script: "true", Env: map[string]string{"A": long[2:]}}, `the variable "A"`},
		{"arguments together", workspace.Command{Args: many}, "together"},
		{"variables together", workspace.Command{Script: "true", Env: env}, "together"},
		{"pointers together", workspace.Command{Args: pointers}, "together"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.cmd.Validate()
			checkInvalid(t, tt.name, err, tt.why)
			if !errors.Is(err, syscall.E2BIG) {
				t.Errorf("%v is not E2BIG", err)
			}
		})
	}
	if err := (workspace.Command{Script: "true", Env: map[string]string{"A": long[3:]}}).Validate(); err != nil {
		t.Errorf("the longest variable: %v", err)
	}
}

// An error about a variable tells its name and never its value (contract B7).
func TestB7_ErrorsDoNotTellEnvValues(t *testing.T) {
	const secret = "hunter2"
	for _, env := range []map[string]string{
		{"TOKEN": secret + "\x00"},
		{"TOKEN": secret, "": secret},
		{"TOKEN": secret, "A=B": secret},
		{"TOKEN": secret + strings.Repeat("a", 128<<10)},
		{"": secret},
	} {
		err := workspace.Command{Args: []string{"true"}, Env: env}.Validate()
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("error %v", err)
		}
	}
	if err := workspace.ValidateEnv(nil); err != nil {
		t.Errorf("no environment: %v", err)
	}
}

func TestC4_TextReplacesEachUndecodableByte(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"plain\n", "plain\n"},
		{"é\u0000\ufffd€😀", "é\u0000\ufffd€😀"},
		{"\xff", "\ufffd"},
		{"a\xff\xfeb", "a\ufffd\ufffdb"},
		{"\xff\xff\xff", "\ufffd\ufffd\ufffd"},
		{"\xe2\x82", "\ufffd\ufffd"},                     // cut in mid-rune
		{"\xe2\x82\xac\xe2", "€\ufffd"},                  // whole, then cut
		{"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},           // a surrogate
		{"\xc0\xaf", "\ufffd\ufffd"},                     // overlong
		{"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"}, // beyond U+10FFFF
		{"\x80é\x80", "\ufffdé\ufffd"},
	} {
		r := &workspace.Result{Stdout: []byte(tt.in), Stderr: []byte(tt.in + "!")}
		if got := r.StdoutText(); got != tt.want {
			t.Errorf("StdoutText of %q = %q, want %q", tt.in, got, tt.want)
		}
		if got := r.StderrText(); got != tt.want+"!" {
			t.Errorf("StderrText of %q = %q, want %q", tt.in, got, tt.want+"!")
		}
	}
	var none *workspace.Result
	if none.StdoutText() != "" || none.StderrText() != "" {
		t.Error("a nil result has a text")
	}
}

func FuzzResultText(f *testing.F) {
	for _, s := range []string{"", "a\xff\xfeb", "€\xe2", "\xed\xa0\x80"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		text := (&workspace.Result{Stdout: out}).StdoutText()
		if !utf8.ValidString(text) {
			t.Fatalf("%q of %q is not UTF-8", text, out)
		}
		// One rune for each rune or undecodable byte, and nothing dropped.
		if got, want := utf8.RuneCountInString(text), utf8.RuneCount(out); got != want {
			t.Fatalf("%d runes of %q, want %d", got, out, want)
		}
		if utf8.Valid(out) && text != string(out) {
			t.Fatalf("%q of %q", text, out)
		}
	})
}

func TestSignalValidate(t *testing.T) {
	for _, s := range []workspace.Signal{
		workspace.SignalHangup, workspace.SignalInterrupt, workspace.SignalQuit, workspace.SignalKill, workspace.SignalTerminate,
		workspace.SignalUser1, workspace.SignalUser2, "WINCH", "RTMIN+1", "RTMAX-14",
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []workspace.Signal{"", "SIGTERM", "term", "9", "-9", "TERM ", "TERM\n", "T\xff", "RTMIN+", "RTMIN+100", workspace.Signal(strings.Repeat("A", 1000))} {
		checkInvalid(t, string(s), s.Validate(), "want a POSIX name without SIG")
	}
}
