package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"

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
		{check: "C2_StdinIsAtItsEnd", fault: "never closes stdin", hangs: true, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				if cmd.Stdin == nil {
					r, w := io.Pipe()
					context.AfterFunc(ctx, func() { w.Close() }) // when the check is over
					cmd.Stdin = r
				}
				return ws.Run(ctx, cmd)
			}}
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
