package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

func runMutants() []mutant {
	return []mutant{
		{check: "B3_ARunOutlivesThePlugin", fault: "ends with the plugin", on: withGuests, bend: afterKill(func(killed <-chan struct{}) func(workspace.Workspace) workspace.Workspace {
			return bendWait(func(_ workspace.Workspace, p workspace.Process) (*workspace.Result, error) {
				res, err := p.Wait()
				select {
				case <-killed:
					return nil, &workspace.PluginError{Provider: durablePlugin, Op: "run", MayHaveExecuted: true, Reason: "the plugin ended during the call"}
				default:
					return res, err
				}
			})
		})},
		{check: "B3_ARunOutlivesThePlugin", fault: "loses what was written meanwhile", on: withGuests, bend: bendDelivery(func(w io.Writer, killed <-chan struct{}) io.Writer {
			var lost atomic.Bool
			return writerFunc(func(b []byte) (int, error) {
				select {
				case <-killed:
					if !lost.Swap(true) {
						return len(b), nil
					}
				default:
				}
				return w.Write(b)
			})
		})},
		{check: "B3_ARunOutlivesThePlugin", fault: "repeats what was delivered", on: withGuests, bend: bendDelivery(func(w io.Writer, killed <-chan struct{}) io.Writer {
			var mu sync.Mutex
			var last []byte
			return writerFunc(func(b []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				select {
				case <-killed:
					if again := last; again != nil {
						last = nil
						if _, err := w.Write(again); err != nil {
							return 0, err
						}
					}
				default:
					last = bytes.Clone(b)
				}
				return w.Write(b)
			})
		})},
		{check: "B3_StdinOutlivesThePlugin", fault: "sends some of it twice", on: withGuests, bend: afterKill(func(killed <-chan struct{}) func(workspace.Workspace) workspace.Workspace {
			return bendStart(func(_ context.Context, cmd *workspace.Command) {
				if cmd.Stdin == nil {
					return
				}
				in, last := cmd.Stdin, []byte(nil)
				cmd.Stdin = readerFunc(func(b []byte) (int, error) {
					select {
					case <-killed:
						if last != nil {
							n := copy(b, last)
							last = nil
							return n, nil
						}
					default:
					}
					n, err := in.Read(b)
					if n > 0 {
						last = bytes.Clone(b[:n])
					}
					return n, err
				})
			})
		}), also: []string{"C4"}},
		{check: "B3_TimeoutOutlivesThePlugin", fault: "is forgotten with the plugin", hangs: true, on: withGuests, bend: afterKill(func(killed <-chan struct{}) func(workspace.Workspace) workspace.Workspace {
			return bendWait(func(ws workspace.Workspace, p workspace.Process) (*workspace.Result, error) {
				res, err := p.Wait()
				select {
				case <-killed:
					return &workspace.Result{ExitCode: 143}, nil
				default:
					return res, err
				}
			})
		})},
		{check: "B3_CancelOutlivesThePlugin", fault: "leaves the command to itself", hangs: true, on: withGuests, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
				p, err := ws.Start(context.WithoutCancel(ctx), cmd)
				if err != nil {
					return nil, err
				}
				return &bentProcess{Process: p, wait: func() (*workspace.Result, error) {
					done := make(chan answer, 1)
					go func() {
						res, err := p.Wait()
						done <- answer{res, err}
					}()
					select {
					case a := <-done:
						return a.res, a.err
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}}, nil
			}}
		})},
		{check: "B3_ADetachedRunOutlivesItsHost", fault: "ends with its host", on: withGuests, bend: leaving(func(ws workspace.Workspace, info workspace.RunInfo) {
			_ = ws.StopRun(context.Background(), info.ID) // the fault
		})},
		{check: "B3_ADetachedRunOutlivesItsHost", fault: "success, whatever the command says", on: withGuests, bend: bendAttachRun(func(_ context.Context, ws workspace.Workspace, id string, opts workspace.AttachOptions) (workspace.Process, error) {
			p, err := ws.AttachRun(context.Background(), id, opts)
			if err != nil {
				return nil, err
			}
			return &bentProcess{Process: p, wait: func() (*workspace.Result, error) {
				res, err := p.Wait()
				if err == nil {
					res.ExitCode = 0
				}
				return res, err
			}}, nil
		})},
		{check: "B3_ADetachedRunOutlivesItsHost", fault: "is not listed", on: withGuests, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, listRuns: func(context.Context) iter.Seq2[workspace.RunInfo, error] {
				return func(func(workspace.RunInfo, error) bool) {}
			}}
		})},
		{check: "B3_AnOutcomeIsGivenOnce", fault: "to whoever asks", on: withGuests, bend: func() func(*Options) {
			var mu sync.Mutex
			kept := map[string]workspace.Process{}
			return bendAttachRun(func(ctx context.Context, ws workspace.Workspace, id string, opts workspace.AttachOptions) (workspace.Process, error) {
				mu.Lock()
				defer mu.Unlock()
				if p := kept[id]; p != nil {
					return p, nil
				}
				p, err := ws.AttachRun(ctx, id, opts)
				if err == nil {
					kept[id] = p
				}
				return p, err
			})
		}()},
		{check: "B3_ARunLeftAloneIsStopped", fault: "goes on as if it were detached", hangs: true, on: withGuests, bend: func(o *Options) {
			otherHosts(o, func(h workspace.Host) workspace.Host {
				return &bentHost{Host: h, bend: bendStart(func(_ context.Context, cmd *workspace.Command) { cmd.Detached = true })}
			})
		}},
		{check: "B3_StopRunStopsTheTree", fault: "says so and stops nothing", hangs: true, on: withGuests, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, stopRun: func(context.Context, string) error { return nil }}
		})},
		{check: "B3_FollowingIsNotOwning", fault: "the end of the following stops it", on: withGuests, bend: bendAttachRun(func(ctx context.Context, ws workspace.Workspace, id string, opts workspace.AttachOptions) (workspace.Process, error) {
			p, err := ws.AttachRun(ctx, id, opts)
			if err != nil {
				return nil, err
			}
			return &bentProcess{Process: p, wait: func() (*workspace.Result, error) {
				res, err := p.Wait()
				if ctx.Err() != nil {
					_ = ws.StopRun(context.Background(), id) // the fault
				}
				return res, err
			}}, nil
		})},
		{check: "B3_OneFollowsAtATime", fault: "who attaches gets what is to come, and not what was", on: withGuests, bend: bendAttachRun(func(ctx context.Context, ws workspace.Workspace, id string, opts workspace.AttachOptions) (workspace.Process, error) {
			opts.StdoutOffset += dripChunk
			return ws.AttachRun(ctx, id, opts)
		})},
		{check: "B3_OneFollowsAtATime", fault: "both are told how it ended", on: withGuests, bend: everyHandle(bendWait(func(_ workspace.Workspace, p workspace.Process) (*workspace.Result, error) {
			res, err := p.Wait()
			if err != nil {
				return &workspace.Result{RunID: p.ID()}, nil //nolint:nilerr // the fault
			}
			return res, nil
		}))},
		{check: "B3_DroppedOutputIsToldAsAGap", fault: "begins where it can, without a word", on: withGuests, bend: bendAttachRun(func(ctx context.Context, ws workspace.Workspace, id string, opts workspace.AttachOptions) (workspace.Process, error) {
			opts.OnGap = func(*workspace.OutputGapError) error { return nil }
			return ws.AttachRun(ctx, id, opts)
		})},
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// afterKill bends all handles with something that is closed when the plugin was
// killed.
func afterKill(bend func(killed <-chan struct{}) func(workspace.Workspace) workspace.Workspace) func(*Options) {
	return func(o *Options) {
		killed := make(chan struct{})
		var once sync.Once
		restart := o.Restart
		o.Restart = func(t testing.TB) {
			restart(t)
			once.Do(func() { close(killed) })
		}
		everyHandle(bend(killed))(o)
	}
}

// bendStart changes what is started, and not what is run at once.
func bendStart(change func(ctx context.Context, cmd *workspace.Command)) func(workspace.Workspace) workspace.Workspace {
	return func(ws workspace.Workspace) workspace.Workspace {
		return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
			change(ctx, &cmd)
			return ws.Start(ctx, cmd)
		}}
	}
}

// bendWait changes how a started command ends.
func bendWait(wait func(ws workspace.Workspace, p workspace.Process) (*workspace.Result, error)) func(workspace.Workspace) workspace.Workspace {
	return func(ws workspace.Workspace) workspace.Workspace {
		return &bent{Workspace: ws, start: func(ctx context.Context, cmd workspace.Command) (workspace.Process, error) {
			p, err := ws.Start(ctx, cmd)
			if err != nil {
				return nil, err
			}
			return &bentProcess{Process: p, wait: func() (*workspace.Result, error) { return wait(ws, p) }}, nil
		}}
	}
}

// bendDelivery changes what is delivered of a started command's stdout.
func bendDelivery(wrap func(w io.Writer, killed <-chan struct{}) io.Writer) func(*Options) {
	return afterKill(func(killed <-chan struct{}) func(workspace.Workspace) workspace.Workspace {
		return bendStart(func(_ context.Context, cmd *workspace.Command) {
			if cmd.Stdout != nil {
				cmd.Stdout = wrap(cmd.Stdout, killed)
			}
		})
	})
}

func bendAttachRun(attach func(ctx context.Context, ws workspace.Workspace, id string, opts workspace.AttachOptions) (workspace.Process, error)) func(*Options) {
	return everyHandle(func(ws workspace.Workspace) workspace.Workspace {
		return &bent{Workspace: ws, attachRun: func(ctx context.Context, id string, opts workspace.AttachOptions) (workspace.Process, error) {
			return attach(ctx, ws, id, opts)
		}}
	})
}

// leaving does something to every run that is there when a host is closed.
func leaving(do func(ws workspace.Workspace, info workspace.RunInfo)) func(*Options) {
	return func(o *Options) {
		otherHosts(o, func(h workspace.Host) workspace.Host {
			var mu sync.Mutex
			var attached []workspace.Workspace
			b := &bentHost{Host: h}
			b.bend = func(ws workspace.Workspace) workspace.Workspace {
				mu.Lock()
				defer mu.Unlock()
				attached = append(attached, ws)
				return ws
			}
			b.close = func() error {
				mu.Lock()
				defer mu.Unlock()
				var errs []error
				for _, ws := range attached {
					for info, err := range ws.ListRuns(context.Background()) {
						if err != nil {
							errs = append(errs, err)
							break
						}
						do(ws, info)
					}
				}
				return errors.Join(append(errs, h.(io.Closer).Close())...)
			}
			return b
		})
	}
}
