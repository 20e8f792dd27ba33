package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// bendArgs changes the arguments of the probe's subcommand.
func bendArgs(change func(string) (string, bool)) func(*Options) {
	return bendCommand(func(cmd *workspace.Command) {
		var args []string
		for _, arg := range cmd.Args {
			if arg, keep := change(arg); keep {
				args = append(args, arg)
			}
		}
		cmd.Args = args
	})
}

// bendEnv changes the variables of every command.
func bendEnv(change func(env map[string]string)) func(*Options) {
	return bendCommand(func(cmd *workspace.Command) {
		env := map[string]string{}
		for name, value := range cmd.Env {
			env[name] = value
		}
		change(env)
		cmd.Env = env
	})
}

// bendStdout changes stdout and stderr.
func bendStdout(change func([]byte) []byte) func(*Options) {
	return bendOutput(func(res *workspace.Result) { res.Stdout, res.Stderr = change(res.Stdout), change(res.Stderr) })
}

// bendCode changes exit codes.
func bendCode(change func(int) int) func(*Options) {
	return bendOutput(func(res *workspace.Result) { res.ExitCode = change(res.ExitCode) })
}

// bendTimeout changes the *TimeoutError.
func bendTimeout(change func(*workspace.TimeoutError)) func(*Options) {
	return bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
		var late *workspace.TimeoutError
		if errors.As(err, &late) {
			change(late)
		}
		return res, err
	})
}

// leaks returns at the timeout and leaves the command running, until its
// caller's context ends.
func leaks(o *Options) {
	everyHandle(func(ws workspace.Workspace) workspace.Workspace {
		return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
			timeout := cmd.Timeout
			if timeout == 0 {
				return ws.Run(ctx, cmd)
			}
			cmd.Timeout = 0
			if _, err := ws.Start(ctx, cmd); err != nil {
				return nil, err
			}
			pause(timeout)
			return nil, &workspace.TimeoutError{Timeout: timeout, Stdout: []byte("ready\n")}
		}}
	})(o)
}

// through runs a command from a shell that does something before.
func through(script string) func(*Options) {
	return bendCommand(func(cmd *workspace.Command) {
		if len(cmd.Args) > 0 {
			cmd.Args = append([]string{"/bin/sh", "-c", script + `; exec "$@"`, "sh"}, cmd.Args...)
		} else {
			cmd.Script = script + "\n" + cmd.Script
		}
	})
}

// semaphore lets one in, or gives up with the context.
type semaphore chan struct{}

func (s semaphore) enter(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s semaphore) leave() { <-s }

func commandMutants() []mutant {
	return slices.Concat(startMutants(), outputMutants(), stopMutants(), backgroundMutants(), envMutants())
}

func startMutants() []mutant {
	return []mutant{
		{check: "C1_ArgumentsAreLiteral", fault: "drops empty arguments", bend: bendArgs(func(s string) (string, bool) { return s, s != "" }), also: []string{"C4", "F9"}},
		{check: "C1_ArgumentsAreLiteral", fault: "trims arguments", bend: bendArgs(func(s string) (string, bool) { return strings.TrimSpace(s), true })},
		{check: "C1_ArgumentsAreLiteral", fault: "makes arguments valid text", bend: bendArgs(func(s string) (string, bool) { return strings.ToValidUTF8(s, "?"), true }), also: []string{"F9"}},
		{check: "C1_ArgumentsAreLiteral", fault: "passes arguments through a shell", bend: bendCommand(func(cmd *workspace.Command) {
			if len(cmd.Args) > 0 {
				cmd.Script, cmd.Args = `"`+strings.Join(cmd.Args, `" "`)+`"`, nil
			}
		}), also: []string{"C3", "C4", "C7", "C9", "F9"}},
		{check: "C1_ScriptRunsUnderShell", fault: "sets -e", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Script != "" {
				cmd.Script = "set -e; " + cmd.Script
			}
		})},
		{check: "C1_ScriptRunsUnderShell", fault: "interpolates a script", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Script != "" {
				cmd.Script = `eval "` + cmd.Script + `"`
			}
		})},
		{check: "C1_InvalidCommandsStartNothing", fault: "an argument ends at NUL", bend: bendArgs(func(s string) (string, bool) {
			s, _, _ = strings.Cut(s, "\x00")
			return s, true
		})},
		{check: "C1_InvalidCommandsStartNothing", fault: "a bad variable is left out", bend: bendEnv(func(env map[string]string) {
			for name, value := range env {
				if workspace.ValidateEnv(map[string]string{name: value}) != nil {
					delete(env, name)
				}
			}
		})},
		{check: "C1_InvalidCommandsStartNothing", fault: "argv wins over a script", bend: bendCommand(func(cmd *workspace.Command) {
			if len(cmd.Args) > 0 {
				cmd.Script = ""
			}
		})},
		{check: "C1_NULInPathIsInvalid", fault: "a path ends at NUL", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{writeFile: func(ctx context.Context, path string, data []byte) error {
				path, _, _ = strings.Cut(path, "\x00")
				return ws.WriteFile(ctx, path, data)
			}}
		})},
		{check: "C1_TooBigIsE2BIG", fault: "too big is exit code 126", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if errors.Is(err, syscall.E2BIG) {
				return &workspace.Result{ExitCode: workspace.ExitNotExecutable}, nil
			}
			return res, err
		})},
		{check: "C1_TooBigIsE2BIG", fault: "less is too big", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				for _, arg := range cmd.Args {
					if len(arg) > 64<<10 {
						return nil, errors.Join(workspace.ErrInvalid, syscall.E2BIG)
					}
				}
				return ws.Run(ctx, cmd)
			}}
		})},

		{check: "C2_StartsInWorkingDirectory", fault: "starts at the root", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Dir == "" {
				cmd.Dir = "/"
			}
		})},
		{check: "C2_StartsInWorkingDirectory", fault: "the working directory is not canonical", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, workingDir: func(ctx context.Context) (string, error) {
				dir, err := ws.WorkingDir(ctx)
				return dir + "/.", err
			}}
		}), also: []string{"F1", "F7"}},
		{check: "C2_DirIsWhereItStarts", fault: "ignores Dir", bend: bendCommand(func(cmd *workspace.Command) { cmd.Dir = "" })},
		{check: "C2_DirIsWhereItStarts", fault: "resolves Dir as text", bend: bendCommand(func(cmd *workspace.Command) {
			if strings.Contains(cmd.Dir, "..") {
				cmd.Dir = path.Clean(cmd.Dir)
			}
		})},
		{check: "C2_MissingDirStartsNothing", fault: "makes a missing Dir", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				if cmd.Dir != "" {
					_ = ws.MkdirAll(ctx, cmd.Dir)
				}
				return ws.Run(ctx, cmd)
			}}
		})},
		{check: "C2_MissingDirStartsNothing", fault: "a missing Dir is exit code 126", bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if err != nil && cmd.Dir != "" {
				return &workspace.Result{ExitCode: workspace.ExitNotExecutable}, nil
			}
			return res, err
		}), also: []string{"C1"}},
		{check: "C2_ProgramIsFoundInItsOwnPATH", fault: "looks in another PATH", bend: bendEnv(func(env map[string]string) { delete(env, "PATH") })},
		{check: "C2_StdinIsAtItsEnd", fault: "gives a stdin that nobody asked for", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Stdin == nil {
				cmd.Stdin = strings.NewReader("x")
			}
		})},
		{check: "C2_StdinIsAtItsEnd", fault: "never closes stdin", hangs: true, bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Stdin == nil {
				r, _ := io.Pipe()
				cmd.Stdin = r
			}
		})},
		{check: "C2_StdinIsDelivered", fault: "loses the last byte of stdin", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Stdin != nil {
				b, err := io.ReadAll(cmd.Stdin)
				if err == nil && len(b) > 0 {
					b = b[:len(b)-1]
				}
				cmd.Stdin = bytes.NewReader(b)
			}
		})},
		{check: "C2_UnreadStdinDelaysNothing", fault: "reads stdin first", hangs: true, bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Stdin != nil {
				b, _ := io.ReadAll(cmd.Stdin)
				cmd.Stdin = bytes.NewReader(b)
			}
		})},

		{check: "C3_ExitCodeIsReal", fault: "keeps seven bits", bend: bendCode(func(n int) int { return n & 0x7f })},
		{check: "C3_ExitCodeIsReal", fault: "an unknown code is 0", bend: bendCode(func(n int) int {
			if n == 255 {
				return 0
			}
			return n
		})},
		{check: "C3_ExitCodeIsReal", fault: "not zero is an error", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if err == nil && res.ExitCode != 0 {
				return nil, errors.New("exit status")
			}
			return res, err
		})},
		{check: "C3_MissingProgramIs127", fault: "is an error", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if err == nil && res.ExitCode == workspace.ExitNotFound && len(res.Stderr) > 0 {
				return nil, errors.New("no such program")
			}
			return res, err
		})},
		{check: "C3_MissingProgramIs127", fault: "the reason is on stdout", bend: bendOutput(func(res *workspace.Result) {
			if res.ExitCode == workspace.ExitNotFound {
				res.Stdout, res.Stderr = res.Stderr, res.Stdout
			}
		})},
		{check: "C3_NotExecutableIs126", fault: "is not found", bend: bendCode(func(n int) int {
			if n == workspace.ExitNotExecutable {
				return workspace.ExitNotFound
			}
			return n
		})},
		{check: "C3_KilledBySignalIs128PlusN", fault: "is -1", bend: bendCode(func(n int) int {
			if n > 128 && n < 160 {
				return -1
			}
			return n
		})},
	}
}

func outputMutants() []mutant {
	return []mutant{
		{check: "C4_StreamsAreApart", fault: "one stream", bend: bendOutput(func(res *workspace.Result) {
			res.Stdout, res.Stderr = append(res.Stdout, res.Stderr...), nil
		})},
		{check: "C4_OutputIsExact", fault: "adds a newline", bend: bendStdout(func(b []byte) []byte { return append(b, '\n') }), also: []string{"C1", "C2", "C9", "F9"}},
		{check: "C4_OutputIsExact", fault: "trims", bend: bendStdout(bytes.TrimSpace)},
		{check: "C4_OutputIsExact", fault: "drops carriage returns", bend: bendStdout(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r"), nil) })},
		{check: "C4_OutputIsExact", fault: "makes it valid text", bend: bendStdout(func(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("\ufffd")) })},
		{check: "C4_LargeOutputIsComplete", fault: "drops a byte of much", bend: bendStdout(func(b []byte) []byte {
			if len(b) > 1<<20 {
				return append(b[:1<<20:1<<20], b[1<<20+1:]...)
			}
			return b
		})},
		{check: "C4_LargeOutputIsComplete", fault: "cuts much", bend: bendStdout(func(b []byte) []byte { return b[:min(len(b), 5<<20)] })},
		{check: "C4_ShortCommandsLoseNothing", fault: "loses what a short command wrote now and then", bend: func(o *Options) {
			var n atomic.Int64
			bendOutput(func(res *workspace.Result) {
				if n.Add(1)%97 == 0 {
					res.Stdout = nil
				}
			})(o)
		}},
		{check: "C4_TextReplacesEachBadByte", fault: "folds bad bytes", bend: bendStdout(func(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("\ufffd")) })},
		{check: "C4_OutputStreamsAsItArrives", fault: "hands output over at the end", hangs: true, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				out := cmd.Stdout
				var all bytes.Buffer
				cmd.Stdout = &all
				p, err := ws.Start(ctx, cmd)
				if err != nil {
					return nil, err
				}
				return &bentProcess{p, func() (*workspace.Result, error) {
					res, err := p.Wait()
					if err == nil {
						_, err = out.Write(all.Bytes())
					}
					return res, err
				}}, nil
			}}
		})},

		{check: "C7_LimitStopsTheCommand", fault: "cuts without an error", bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			var over *workspace.OutputLimitError
			if errors.As(err, &over) && cmd.Stdout == nil {
				return &workspace.Result{Stdout: over.Stdout, Stderr: over.Stderr}, nil
			}
			return res, err
		})},
		{check: "C7_LimitStopsTheCommand", fault: "keeps no beginning", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			var over *workspace.OutputLimitError
			if errors.As(err, &over) {
				over.Stdout = nil
			}
			return res, err
		})},
		{check: "C7_LimitStopsTheCommand", fault: "leaves the tree running", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				if !slices.Contains(cmd.Args, "flood") {
					return ws.Run(ctx, cmd)
				}
				ready := make(chan struct{})
				var once sync.Once
				leaked := cmd
				leaked.Args = slices.DeleteFunc(slices.Clone(cmd.Args), func(s string) bool { return s == "flood" })
				leaked.Stdout = writerFunc(func(b []byte) (int, error) { once.Do(func() { close(ready) }); return len(b), nil })
				if _, err := ws.Start(ctx, leaked); err != nil {
					return nil, err
				}
				<-ready
				return nil, &workspace.OutputLimitError{Limit: cmd.OutputLimit}
			}}
		})},
		{check: "C7_DefaultIs10MiBForBothStreams", fault: "the limit itself is too much", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.OutputLimit == 0 {
				cmd.OutputLimit = workspace.DefaultOutputLimit - 1
			}
		})},
		{check: "C7_DefaultIs10MiBForBothStreams", fault: "10 MiB for each stream", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.OutputLimit == 0 {
				cmd.OutputLimit = 2 * workspace.DefaultOutputLimit
			}
		})},
		{check: "C7_StreamedOutputIsLimitedToo", fault: "what is streamed has no limit's error", bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			var over *workspace.OutputLimitError
			if errors.As(err, &over) && cmd.Stdout != nil {
				return &workspace.Result{}, nil
			}
			return res, err
		})},
		{check: "C7_StreamedOutputMayLiftTheLimit", fault: "the limit cannot be lifted", bend: bendCommand(func(cmd *workspace.Command) {
			cmd.OutputLimit = max(cmd.OutputLimit, 0)
		})},
	}
}

func stopMutants() []mutant {
	return []mutant{
		{check: "C5_TimeoutStopsTheTree", fault: "leaves children", bend: leaks},
		{check: "C5_TimeoutStopsAForkStorm", fault: "leaves children", bend: leaks},
		{check: "C5_TermComesFirst", fault: "kills at once", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				timeout := cmd.Timeout
				if timeout == 0 {
					return ws.Run(ctx, cmd)
				}
				cmd.Timeout = 0
				p, err := ws.Start(ctx, cmd)
				if err != nil {
					return nil, err
				}
				pause(timeout)
				err = p.Signal(ctx, workspace.SignalKill)
				if _, werr := p.Wait(); err != nil || werr != nil {
					return nil, errors.Join(err, werr)
				}
				return nil, &workspace.TimeoutError{Timeout: timeout}
			}}
		})},
		{check: "C5_KillFollows", fault: "leaves who does not hear TERM", bend: leaks},
		{check: "C5_KillFollows", fault: "late", hangs: true, bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if cmd.Timeout > 0 {
				pause(stopTime + 2*time.Second)
			}
			return res, err
		})},
		{check: "C5_ErrorKeepsTheBeginnings", fault: "keeps nothing", bend: bendTimeout(func(late *workspace.TimeoutError) { late.Stdout = nil })},
		{check: "C5_ErrorKeepsTheBeginnings", fault: "keeps the ends", bend: bendTimeout(func(late *workspace.TimeoutError) {
			if len(late.Stderr) > 1000 {
				late.Stderr = late.Stderr[len(late.Stderr)-1000:]
			}
		})},
		{check: "C5_StartedCommandsTimeOutToo", fault: "a started command was killed", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				p, err := ws.Start(ctx, cmd)
				if err != nil {
					return nil, err
				}
				return &bentProcess{p, func() (*workspace.Result, error) {
					res, err := p.Wait()
					var late *workspace.TimeoutError
					if errors.As(err, &late) {
						return &workspace.Result{ExitCode: 137}, nil
					}
					return res, err
				}}, nil
			}}
		})},
		{check: "C5_ZeroIsNone", fault: "zero is a default", bend: bendCommand(func(cmd *workspace.Command) {
			if cmd.Timeout == 0 && slices.Contains(cmd.Args, "sleep") {
				cmd.Timeout = 500 * time.Millisecond
			}
		})},
		{check: "C5_NegativeIsInvalid", fault: "negative is none", bend: bendCommand(func(cmd *workspace.Command) { cmd.Timeout = max(cmd.Timeout, 0) })},
		{check: "C5_CreatingDoesNotCount", fault: "counts from the call on", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				began := time.Now()
				if _, err := ws.WorkingDir(ctx); err != nil {
					return nil, err
				}
				if timeout := cmd.Timeout; timeout > 0 {
					if cmd.Timeout -= time.Since(began); cmd.Timeout <= 0 {
						return nil, &workspace.TimeoutError{Timeout: timeout}
					}
				}
				return ws.Run(ctx, cmd)
			}}
		})},
		{check: "C5_TimeoutAppliesAfterAttach", fault: "an attached handle has none", hangs: true, bend: attaching(func(h workspace.Host, ref workspace.Ref) (workspace.Workspace, error) {
			ws, err := h.Attach(ref)
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				cmd.Timeout = 0
				return ws.Run(ctx, cmd)
			}}, err
		})},

		{check: "C6_CancelStopsTheTree", fault: "leaves the command", hangs: true, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				p, err := ws.Start(context.WithoutCancel(ctx), cmd)
				if err != nil {
					return nil, err
				}
				return &bentProcess{p, func() (*workspace.Result, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}}, nil
			}}
		})},
		{check: "C6_CancelStopsTheTree", fault: "is another error", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if errors.Is(err, context.Canceled) {
				return nil, errors.New("stopped")
			}
			return res, err
		})},
		{check: "C6_DeadlineIsNoTimeoutError", fault: "is a *TimeoutError", bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil, errors.Join(err, &workspace.TimeoutError{Timeout: cmd.Timeout})
			}
			return res, err
		})},
		{check: "C6_CancelledBeforehandStartsNothing", fault: "starts it all the same", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				res, err := ws.Run(context.WithoutCancel(ctx), cmd)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return res, err
			}}
		})},
	}
}

func backgroundMutants() []mutant {
	late := func(mode string) func(*Options) {
		return bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if slices.Contains(cmd.Args, "background") && slices.Contains(cmd.Args, mode) {
				pause(2500 * time.Millisecond)
			}
			return res, err
		})
	}
	return []mutant{
		{check: "C8_BackgroundChildHoldsUpNothing", fault: "waits for the child", hangs: true, bend: late("hold")},
		{check: "C8_BackgroundChildHoldsUpNothing", fault: "loses what was written last", bend: bendStdout(func(b []byte) []byte {
			return b[:min(len(b), 20_000)]
		})},
		{check: "C8_WritingChildHoldsUpNothing", fault: "waits for silence", hangs: true, bend: late("write")},
		{check: "C8_BackgroundChildGoesOn", fault: "kills the child", hangs: true, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				if !slices.Contains(cmd.Args, "late") {
					return ws.Run(ctx, cmd)
				}
				cmd.Args = slices.Clone(cmd.Args)
				cmd.Args[slices.Index(cmd.Args, "late")] = "hold" // one that has nothing to say is as good as dead
				return ws.Run(ctx, cmd)
			}}
		})},
		{check: "C8_OutputAtTheEndReachesASlowReader", fault: "reads for a second only", bend: bendCommand(func(cmd *workspace.Command) {
			if out := cmd.Stdout; out != nil {
				began := time.Now()
				cmd.Stdout = writerFunc(func(b []byte) (int, error) {
					for rest := b; len(rest) > 0 && time.Since(began) < time.Second; {
						n := min(len(rest), 8<<10)
						if _, err := out.Write(rest[:n]); err != nil {
							return 0, err
						}
						rest = rest[n:]
					}
					return len(b), nil
				})
			}
		})},

		{check: "C10_CommandsRunConcurrently", fault: "one after the other", hangs: true, bend: func(o *Options) {
			one := make(semaphore, 1)
			everyHandle(func(ws workspace.Workspace) workspace.Workspace {
				return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
					if err := one.enter(ctx); err != nil {
						return nil, err
					}
					defer one.leave()
					return ws.Run(ctx, cmd)
				}}
			})(o)
		}},
		{check: "C10_UnreadOutputDelaysNoOtherCall", fault: "waits for who is not read", hangs: true, bend: func(o *Options) {
			one := make(semaphore, 1)
			everyHandle(func(ws workspace.Workspace) workspace.Workspace {
				return &bent{Workspace: ws,
					run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
						if err := one.enter(ctx); err != nil {
							return nil, err
						}
						defer one.leave()
						return ws.Run(ctx, cmd)
					},
					start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
						if err := one.enter(ctx); err != nil {
							return nil, err
						}
						p, err := ws.Start(ctx, cmd)
						if err != nil {
							one.leave()
							return nil, err
						}
						return &bentProcess{p, func() (*workspace.Result, error) {
							defer one.leave()
							return p.Wait()
						}}, nil
					},
				}
			})(o)
		}},
		{check: "C10_UnreadOutputDelaysNotItsTimeout", fault: "waits until its output is taken", hangs: true, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				var writing sync.Mutex
				if out := cmd.Stdout; out != nil {
					cmd.Stdout = writerFunc(func(b []byte) (int, error) {
						writing.Lock()
						defer writing.Unlock()
						return out.Write(b)
					})
				}
				p, err := ws.Start(ctx, cmd)
				if err != nil {
					return nil, err
				}
				return &bentProcess{p, func() (*workspace.Result, error) {
					res, err := p.Wait()
					writing.Lock()
					defer writing.Unlock()
					return res, err
				}}, nil
			}}
		})},
		{check: "C10_UnreadOutputIsBounded", fault: "keeps all that is not read", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				if out := cmd.Stdout; out != nil {
					var first sync.Once
					cmd.Stdout = writerFunc(func(b []byte) (int, error) {
						first.Do(func() { go out.Write(b[:1]) }) // waits at the gate, which the check opens
						return len(b), nil
					})
				}
				return ws.Start(ctx, cmd)
			}}
		})},
	}
}

func envMutants() []mutant {
	return []mutant{
		{check: "C9_CallsOwnEnvIsExact", fault: "drops empty values", bend: bendEnv(func(env map[string]string) {
			for name, value := range env {
				if value == "" {
					delete(env, name)
				}
			}
		})},
		{check: "C9_CallsOwnEnvIsExact", fault: "makes names valid text", bend: bendEnv(func(env map[string]string) {
			for name, value := range env {
				delete(env, name)
				env[strings.ToValidUTF8(name, "?")] = value
			}
		})},
		{check: "C9_CallComesAfterProviderAfterWorkspace", fault: "the provider has the last word", bend: func(o *Options) {
			provider := o.Env
			bendEnv(func(env map[string]string) {
				for name := range env {
					if value, ok := provider[name]; ok {
						env[name] = value
					}
				}
			})(o)
		}},
		{check: "C9_ValuesAreNotKept", fault: "keeps variables for the next command", bend: func(o *Options) {
			var kept memory[map[string]string]
			bendEnv(func(env map[string]string) {
				before, _ := kept.get("")
				for name, value := range before {
					if _, ok := env[name]; !ok {
						env[name] = value
					}
				}
				all := map[string]string{}
				for name, value := range env {
					all[name] = value
				}
				kept.put("", all)
			})(o)
		}},
		{check: "C9_NothingOfTheHostLeaks", fault: "passes its own environment on", bend: bendEnv(func(env map[string]string) {
			for _, kv := range os.Environ() {
				if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "CONFORMANCE_HOST_") {
					env[name] = value
				}
			}
		})},
		{check: "C9_NothingOfTheHostLeaks", fault: "passes its helper's settings on", bend: bendEnv(func(env map[string]string) { env["GOMAXPROCS"] = "1" })},
		{check: "C9_NoSignalSetOrDescriptorLeaks", fault: "ignores a signal", bend: through("trap '' USR1"), also: []string{"C1", "C2", "C3"}},
		{check: "C9_NoSignalSetOrDescriptorLeaks", fault: "leaves a descriptor open", bend: through("exec 9</dev/null"), also: []string{"C1", "C2", "C3"}},
	}
}
