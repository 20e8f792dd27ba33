package conformance

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// onUnavailable makes the calls of a handle to do something else when its
// workspace is gone.
func onUnavailable(ws workspace.Workspace, instead func(context.Context) (workspace.Workspace, error)) workspace.Workspace {
	return &bent{Workspace: ws,
		workingDir: func(ctx context.Context) (string, error) {
			dir, err := ws.WorkingDir(ctx)
			if errors.Is(err, workspace.ErrUnavailable) {
				if other, oerr := instead(ctx); oerr == nil {
					return other.WorkingDir(ctx)
				}
			}
			return dir, err
		},
		stat: func(ctx context.Context, path string) (workspace.FileInfo, error) {
			info, err := ws.Stat(ctx, path)
			if errors.Is(err, workspace.ErrUnavailable) {
				if other, oerr := instead(ctx); oerr == nil {
					return other.Stat(ctx, path)
				}
			}
			return info, err
		},
	}
}

func lifeMutants() []mutant {
	return []mutant{
		{check: "L1_HandlesAreMadeWithoutIO", fault: "creates with the handle", bend: func(o *Options) {
			good := o.Host
			o.Host = &bentHost{Host: good, open: func(p string, opts []workspace.Option) (workspace.Workspace, error) {
				ws, err := good.Workspace(p, opts...)
				if err == nil {
					_, err = ws.WorkingDir(context.Background())
				}
				return ws, err
			}}
		}, also: []string{"L4"}},
		{check: "L1_HandlesAreMadeWithoutIO", fault: "looks for the workspace while attaching", bend: func(o *Options) {
			good := o.Host
			o.Host = &bentHost{Host: good, attach: func(ref workspace.Ref) (workspace.Workspace, error) {
				ws, err := good.Attach(ref)
				if err == nil {
					_, err = ws.WorkingDir(context.Background())
				}
				return ws, err
			}}
		}},
		{check: "L1_HandlesStartNoPlugin", fault: "starts the plugin with the handle", bend: func(o *Options) {
			otherHosts(o, func(good workspace.Host) workspace.Host {
				return &bentHost{Host: good, open: func(p string, opts []workspace.Option) (workspace.Workspace, error) {
					for range good.List(context.Background(), p, workspace.ListOptions{}) {
						break
					}
					return good.Workspace(p, opts...)
				}}
			})
			look := o.Started
			o.Started = func(h workspace.Host) bool { return look(h.(*bentHost).Host) }
		}},
		{check: "L2_ConcurrentFirstUseMakesOne", fault: "every operation creates", bend: createsAgain, also: []string{"L3", "L6", "C2", "F1"}},
		{check: "L2_SameTokenIsSameWorkspace", fault: "another token each time", bend: func(o *Options) {
			everyHost(o, bendOpen(func(o *workspace.OpenOptions) { o.Token = "" }))
		}},
		{check: "L2_CancelledFirstUseMakesOne", fault: "a new token after a cancelled create", bend: forgetsCancelled},
		{check: "L2_CancelledCallerFailsNoOther", fault: "one cancelled caller fails all", bend: func(o *Options) {
			everyHandle(func(ws workspace.Workspace) workspace.Workspace {
				var cancelled atomic.Bool
				return &bent{Workspace: ws, workingDir: func(ctx context.Context) (string, error) {
					pause(50 * time.Millisecond)
					if ctx.Err() != nil {
						cancelled.Store(true)
					} else {
						pause(100 * time.Millisecond)
					}
					if cancelled.Load() {
						return "", context.Canceled
					}
					return ws.WorkingDir(ctx)
				}}
			})(o)
		}},
		{check: "L2_RefIsThereAfterFirstUse", fault: "no ref", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, ref: func() (workspace.Ref, bool) { return workspace.Ref{}, false }}
		}), also: []string{"L3", "L4", "L6", "C2"}},
		{check: "L2_RefIsThereAfterFirstUse", fault: "the ref names the plugin", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, ref: func() (workspace.Ref, bool) {
				ref, ok := ws.Ref()
				ref.Provider = "plugin"
				return ref, ok
			}}
		}), also: []string{"L3", "L4", "L6"}},
		{check: "L2_FailedCreateFailsAllAndIsTriedAgain", fault: "never tries again", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			var mu sync.Mutex
			var kept error
			return &bent{Workspace: ws, workingDir: func(ctx context.Context) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				if kept != nil {
					return "", kept
				}
				dir, err := ws.WorkingDir(ctx)
				kept = err
				return dir, err
			}}
		})},
		{check: "L2_PluginKilledInCreateMakesOne", fault: "a new token after the plugin's death", on: ownProcess, bend: func(o *Options) {
			// Whether the kill meets a create is a matter of time: this one
			// takes every create for one that was met.
			createsAgain(o)
		}, also: []string{"L3", "L6", "C2", "F1"}},

		{check: "L3_AttachReachesTheSameWorkspace", fault: "attaching creates", bend: attaching(func(h workspace.Host, ref workspace.Ref) (workspace.Workspace, error) {
			return h.Workspace(ref.Provider)
		}), also: []string{"L2", "L4", "C2"}},
		{check: "L3_AnotherHostReachesTheSameWorkspace", fault: "refs hold on one host only", bend: func(o *Options) {
			otherHosts(o, func(h workspace.Host) workspace.Host {
				return &bentHost{Host: h, attach: func(ref workspace.Ref) (workspace.Workspace, error) { return h.Workspace(ref.Provider) }}
			})
		}},
		{check: "L3_AttachNeverCreates", fault: "creates what is gone", bend: attaching(func(h workspace.Host, ref workspace.Ref) (workspace.Workspace, error) {
			ws, err := h.Attach(ref)
			if err != nil {
				return nil, err
			}
			return onUnavailable(ws, func(context.Context) (workspace.Workspace, error) { return h.Workspace(ref.Provider) }), nil
		})},
		{check: "L3_StoppedIsStarted", fault: "a stopped one is left stopped", bend: func(o *Options) {
			stop := o.Stop
			h := &bentHost{Host: o.Host}
			o.Host = h
			o.Stop = func(t testing.TB, ref workspace.Ref) {
				stop(t, ref)
				h.attach = func(ref workspace.Ref) (workspace.Workspace, error) {
					return h.Host.Attach(workspace.Ref{Provider: ref.Provider, ID: workspace.NewToken()}) // not there
				}
			}
		}},
		{check: "L3_AttachNeedsNoConfiguration", fault: "today's configuration says where it begins", bend: func(o *Options) {
			make := o.Reconfigured
			o.Reconfigured = func(t testing.TB) workspace.Host {
				return &bentHost{Host: make(t), bend: func(ws workspace.Workspace) workspace.Workspace {
					return &bent{Workspace: ws, workingDir: func(ctx context.Context) (string, error) {
						dir, err := ws.WorkingDir(ctx)
						return join(dir, "elsewhere"), err
					}}
				}}
			}
		}},

		{check: "L4_NameCreatesThenAttaches", fault: "the name is not used", bend: func(o *Options) {
			everyHost(o, bendOpen(func(o *workspace.OpenOptions) { o.Name = "" }))
		}},
		{check: "L4_NamesAreApart", fault: "one workspace for all names", bend: func(o *Options) {
			everyHost(o, bendOpen(func(o *workspace.OpenOptions) {
				if o.Name != "" {
					o.Name = "all"
				}
			}))
		}},
		{check: "L4_BadNameIsInvalid", fault: "a bad name is made good", bend: func(o *Options) {
			everyHost(o, bendOpen(func(o *workspace.OpenOptions) {
				if o.Name != "" && workspace.ValidateWorkspaceName(o.Name) != nil {
					o.Name = "good"
				}
			}))
		}},
		{check: "L4_RacingClientsEndInOne", fault: "a name belongs to its host", bend: func(o *Options) {
			otherHosts(o, bendOpen(func(o *workspace.OpenOptions) {
				if o.Name != "" {
					o.Name += "-2"
				}
			}))
		}},
		{check: "L4_RefOfNameIsAttachOnly", fault: "a ref's name creates again", bend: attaching(func(h workspace.Host, ref workspace.Ref) (workspace.Workspace, error) {
			ws, err := h.Attach(ref)
			if err != nil || workspace.IsToken(ref.ID) {
				return ws, err
			}
			return onUnavailable(ws, func(context.Context) (workspace.Workspace, error) {
				return h.Workspace(ref.Provider, workspace.WithName(ref.ID))
			}), nil
		})},
		{check: "L4_ForeignNameIsInvalid", fault: "takes what has the name", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, workingDir: func(ctx context.Context) (string, error) {
				dir, err := ws.WorkingDir(ctx)
				if errors.Is(err, workspace.ErrInvalid) {
					return "/", nil
				}
				return dir, err
			}}
		})},
		{check: "L4_ConfiguredNameIsTheOnlyOne", fault: "any name leads to the configured one", bend: func(o *Options) {
			make := o.Configured
			o.Configured = func(t testing.TB) Configured {
				c := make(t)
				c.Host = bendOpen(func(o *workspace.OpenOptions) { o.Name = "" })(c.Host)
				return c
			}
		}},

		{check: "L5_RefNeverChanges", fault: "another ref after an error", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			var failed atomic.Bool
			return &bent{Workspace: ws,
				stat: func(ctx context.Context, path string) (workspace.FileInfo, error) {
					info, err := ws.Stat(ctx, path)
					failed.Store(failed.Load() || err != nil)
					return info, err
				},
				ref: func() (workspace.Ref, bool) {
					ref, ok := ws.Ref()
					if failed.Load() {
						ref.ID += "-2"
					}
					return ref, ok
				},
			}
		}), also: []string{"C2"}},
		{check: "L5_RefOutlivesThePlugin", fault: "another ref after a restart", on: ownProcess, bend: func(o *Options) {
			var restarted atomic.Bool
			restart := o.Restart
			o.Restart = func(t testing.TB) { restart(t); restarted.Store(true) }
			everyHandle(func(ws workspace.Workspace) workspace.Workspace {
				return &bent{Workspace: ws, ref: func() (workspace.Ref, bool) {
					ref, ok := ws.Ref()
					if restarted.Load() {
						ref.ID = workspace.NewToken()
					}
					return ref, ok
				}}
			})(o)
		}},

		{check: "L6_DestroyDestroys", fault: "destroys nothing", bend: destroying(func(context.Context, workspace.Host, workspace.Ref) error { return nil }), also: []string{"L3", "L7"}},
		{check: "L6_DestroyTwiceIsSuccess", fault: "gone already is an error", bend: destroying(func(ctx context.Context, h workspace.Host, ref workspace.Ref) error {
			ws, err := h.Attach(ref)
			if err == nil {
				_, err = ws.WorkingDir(ctx)
			}
			return errors.Join(err, h.Destroy(ctx, ref))
		}), also: []string{"L2", "L3"}},
		{check: "L6_DestroyLeavesOthers", fault: "destroys all", bend: destroying(destroyAll)},
		{check: "L6_ClosingAHostDestroysNothing", fault: "closing destroys", bend: func(o *Options) {
			provider := o.Provider
			otherHosts(o, func(h workspace.Host) workspace.Host {
				b := &bentHost{Host: h}
				b.close = func() error {
					err := destroyAll(context.Background(), h, workspace.Ref{Provider: provider})
					return errors.Join(err, h.(interface{ Close() error }).Close())
				}
				return b
			})
		}},
		{check: "L6_PluginEndDestroysNothing", fault: "workspaces end with the plugin", on: ownProcess, bend: func(o *Options) {
			restart, h, provider := o.Restart, o.Host, o.Provider
			o.Restart = func(t testing.TB) {
				if err := destroyAll(context.Background(), h, workspace.Ref{Provider: provider}); err != nil {
					t.Error(err)
				}
				restart(t)
			}
		}},
		{check: "L6_RefOfAnotherProviderIsInvalid", fault: "looks at the id alone", bend: func(o *Options) {
			provider := o.Provider
			destroying(func(ctx context.Context, h workspace.Host, ref workspace.Ref) error {
				ref.Provider = provider
				return h.Destroy(ctx, ref)
			})(o)
		}},
		{check: "L6_ForeignRefIsInvalid", fault: "what somebody else made is no error", bend: destroying(func(ctx context.Context, h workspace.Host, ref workspace.Ref) error {
			err := h.Destroy(ctx, ref)
			if errors.Is(err, workspace.ErrInvalid) {
				return nil
			}
			return err
		})},

		{check: "L7_DestroyEndsACommandAtOnce", fault: "looks like a killed command", bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if errors.Is(err, workspace.ErrUnavailable) {
				return &workspace.Result{ExitCode: 137}, nil
			}
			return res, err
		})},
		{check: "L7_DestroyEndsACommandAtOnce", fault: "late", hangs: true, bend: bendResult(func(_ workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if errors.Is(err, workspace.ErrUnavailable) {
				pause(3 * time.Second)
			}
			return res, err
		})},
		{check: "L7_NothingWorksAfterDestroy", fault: "a file of a workspace that is gone is missing", bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, stat: func(ctx context.Context, path string) (workspace.FileInfo, error) {
				info, err := ws.Stat(ctx, path)
				if errors.Is(err, workspace.ErrUnavailable) {
					err = &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
				}
				return info, err
			}}
		})},
		{check: "L8_ReplacedIsUnavailable", fault: "goes on in the new one", bend: func(o *Options) { goesOnInNew(o, nil) }},
		{check: "L8_ReplacedIsUnavailableAfterRestart", fault: "a restarted plugin forgets the incarnation", on: ownProcess, bend: func(o *Options) {
			var restarted atomic.Bool
			restart := o.Restart
			o.Restart = func(t testing.TB) { restart(t); restarted.Store(true) }
			goesOnInNew(o, restarted.Load)
		}},
	}
}

// createsAgain makes a workspace with every WorkingDir.
func createsAgain(o *Options) {
	everyHost(o, func(h workspace.Host) workspace.Host {
		return &bentHost{Host: h, open: func(p string, opts []workspace.Option) (workspace.Workspace, error) {
			ws, err := h.Workspace(p, opts...)
			if err != nil {
				return nil, err
			}
			var mu sync.Mutex
			current := ws
			return &bent{Workspace: ws,
				workingDir: func(ctx context.Context) (string, error) {
					another, err := h.Workspace(p, opts...)
					if err != nil {
						return "", err
					}
					dir, err := another.WorkingDir(ctx)
					if err == nil {
						mu.Lock()
						current = another
						mu.Unlock()
					}
					return dir, err
				},
				ref: func() (workspace.Ref, bool) {
					mu.Lock()
					defer mu.Unlock()
					return current.Ref()
				},
			}, nil
		}}
	})
}

// forgetsCancelled leaves a cancelled create to itself and begins a new one.
func forgetsCancelled(o *Options) {
	everyHost(o, func(h workspace.Host) workspace.Host {
		return &bentHost{Host: h, open: func(p string, opts []workspace.Option) (workspace.Workspace, error) {
			ws, err := h.Workspace(p, opts...)
			if err != nil {
				return nil, err
			}
			var mu sync.Mutex
			return &bent{Workspace: ws,
				workingDir: func(ctx context.Context) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					dir, err := ws.WorkingDir(ctx)
					if err != nil && ctx.Err() != nil {
						if _, err := ws.WorkingDir(context.WithoutCancel(ctx)); err != nil {
							return "", err
						}
						another, err := h.Workspace(p, opts...)
						if err != nil {
							return "", err
						}
						ws = another
						return "", ctx.Err()
					}
					return dir, err
				},
				ref: func() (workspace.Ref, bool) {
					mu.Lock()
					defer mu.Unlock()
					return ws.Ref()
				},
			}, nil
		}}
	})
}

// attaching bends Attach on all hosts.
func attaching(attach func(h workspace.Host, ref workspace.Ref) (workspace.Workspace, error)) func(*Options) {
	return func(o *Options) {
		everyHost(o, func(h workspace.Host) workspace.Host {
			return &bentHost{Host: h, attach: func(ref workspace.Ref) (workspace.Workspace, error) { return attach(h, ref) }}
		})
	}
}

func destroying(destroy func(ctx context.Context, h workspace.Host, ref workspace.Ref) error) func(*Options) {
	return func(o *Options) {
		everyHost(o, func(h workspace.Host) workspace.Host {
			return &bentHost{Host: h, destroy: func(ctx context.Context, ref workspace.Ref) error { return destroy(ctx, h, ref) }}
		})
	}
}

func destroyAll(ctx context.Context, h workspace.Host, ref workspace.Ref) error {
	var errs []error
	for info, err := range h.List(ctx, ref.Provider, workspace.ListOptions{}) {
		if err == nil {
			err = h.Destroy(ctx, info.Ref)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// goesOnInNew attaches again when the workspace is not the one it was.
func goesOnInNew(o *Options, when func() bool) {
	everyHost(o, func(h workspace.Host) workspace.Host {
		return &bentHost{Host: h, bend: func(ws workspace.Workspace) workspace.Workspace {
			return onUnavailable(ws, func(context.Context) (workspace.Workspace, error) {
				ref, ok := ws.Ref()
				if !ok || when != nil && !when() {
					return nil, workspace.ErrUnavailable
				}
				return h.Attach(ref)
			})
		}}
	})
}
