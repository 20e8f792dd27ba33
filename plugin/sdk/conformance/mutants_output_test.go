package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

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
		{check: "C7_LimitStopsTheCommand", fault: "keeps the beginning of stdout alone", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			var over *workspace.OutputLimitError
			if errors.As(err, &over) {
				over.Stderr = nil
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
