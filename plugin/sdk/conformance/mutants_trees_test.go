package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

func treeMutants() []mutant {
	return []mutant{
		{check: "F5_MkdirAllMakesParents", fault: "makes no parents", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{mkdirAll: func(ctx context.Context, name string) error {
				if _, err := ws.Stat(ctx, path.Dir(name)); err != nil {
					return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrNotExist}
				}
				return ws.MkdirAll(ctx, name)
			}}
		}), also: []string{"F4", "F7"}},
		{check: "F5_MkdirAllMakesParents", fault: "makes them 0700", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{mkdirAll: func(ctx context.Context, name string) error {
				if err := ws.MkdirAll(ctx, name); err != nil {
					return err
				}
				return ws.Chmod(ctx, name, 0o700)
			}}
		})},
		{check: "F5_MkdirAllIsIdempotent", fault: "what is there is an error", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{mkdirAll: func(ctx context.Context, name string) error {
				if _, err := ws.Stat(ctx, name); err == nil {
					return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
				}
				return ws.MkdirAll(ctx, name)
			}}
		}), also: []string{"F1"}},
		{check: "F5_OverAFileIsErrExist", fault: "is success", bend: noError(fs.ErrExist)},
		{check: "F5_OverAFileIsErrExist", fault: "replaces the file", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{mkdirAll: func(ctx context.Context, name string) error {
				if info, err := ws.Stat(ctx, name); err == nil && !info.IsDir() {
					if err := ws.Remove(ctx, name); err != nil {
						return err
					}
				}
				return ws.MkdirAll(ctx, name)
			}}
		})},
		{check: "F5_BelowAFileIsENOTDIR", fault: "is there", bend: another(syscall.ENOTDIR, fs.ErrExist)},

		{check: "F6_RemoveTakesFilesAndTrees", fault: "takes no trees", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{remove: func(ctx context.Context, name string) error {
				if entries, err := ws.ReadDir(ctx, name); err == nil && len(entries) > 0 {
					return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
				}
				return ws.Remove(ctx, name)
			}}
		}), also: []string{"F4"}},
		{check: "F6_RemoveTakesFilesAndTrees", fault: "leaves hidden files", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{remove: func(ctx context.Context, name string) error {
				if _, err := ws.Lstat(ctx, join(name, "b/.d/e")); err == nil {
					return ws.Remove(ctx, join(name, "a"))
				}
				return ws.Remove(ctx, name)
			}}
		})},
		{check: "F6_RemoveTakesTheLinkItself", fault: "takes what the link leads to", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{remove: func(ctx context.Context, name string) error {
				if real, err := ws.RealPath(ctx, name); err == nil {
					name = real
				}
				return ws.Remove(ctx, name)
			}}
		}), also: []string{"F3"}},
		{check: "F6_RemoveOfMissingIsNotExist", fault: "is success", bend: bendFiles(func(ws workspace.Workspace) *bent { return &bent{remove: ws.RemoveAll} }), also: []string{"F3"}},
		{check: "F6_RemoveAllOfMissingIsNil", fault: "is an error", bend: bendFiles(func(ws workspace.Workspace) *bent { return &bent{removeAll: ws.Remove} })},
		{check: "F6_WorkingDirectoryIsRefused", fault: "is success", bend: noError(workspace.ErrInvalid)},

		{check: "F7_KeepsMissingNames", fault: "a missing name is an error", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{realPath: func(ctx context.Context, name string) (string, error) {
				if _, err := ws.Lstat(ctx, name); err != nil {
					return "", err
				}
				return ws.RealPath(ctx, name)
			}}
		})},
		{check: "F7_FollowsLinks", fault: "resolves as text", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{realPath: func(ctx context.Context, name string) (string, error) {
				real, err := ws.RealPath(ctx, name)
				if err == nil && path.IsAbs(name) {
					real = path.Clean(name)
				}
				return real, err
			}}
		})},
		{check: "F7_LoopIsAnError", fault: "a loop is itself", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{realPath: func(ctx context.Context, name string) (string, error) {
				real, err := ws.RealPath(ctx, name)
				if errors.Is(err, syscall.ELOOP) {
					return name, nil
				}
				return real, err
			}}
		})},
	}
}

func streamMutants() []mutant {
	return []mutant{
		{check: "F8_LargeFilesStreamInBoundedMemory", fault: "keeps a file that is written", alone: true, bend: bendContent(func(b []byte) []byte { return b })},
		{check: "F8_LargeFilesStreamInBoundedMemory", fault: "keeps a file that is read", alone: true, bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{open: func(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
				r, err := ws.Open(ctx, path, opts)
				if err != nil {
					return nil, err
				}
				all, err := io.ReadAll(r)
				if err != nil {
					return nil, errors.Join(err, r.Close())
				}
				held := bytes.NewReader(all)
				return &bentReader{r, struct{ io.Reader }{held}}, nil
			}}
		})},
		{check: "F8_ReadsFromAnyOffset", fault: "ignores the offset", bend: bendReads(func(o *workspace.ReadOptions) { o.Offset = min(o.Offset, 0) })},
		{check: "F8_ReadsFromAnyOffset", fault: "ignores the length", bend: bendReads(func(o *workspace.ReadOptions) { o.Length = min(o.Length, 0) })},
		{check: "F8_ReadsFromAnyOffset", fault: "begins at a block", bend: bendReads(func(o *workspace.ReadOptions) {
			if o.Offset > 131_072 && o.Offset < 1<<20 {
				o.Offset -= o.Offset % 4096
			}
		})},

		{check: "F9_CommandsSeeWhatWasWritten", fault: "writes arrive elsewhere", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{
				writeFile: func(ctx context.Context, path string, data []byte) error { return ws.WriteFile(ctx, path+"~", data) },
				readFile:  func(ctx context.Context, path string) ([]byte, error) { return ws.ReadFile(ctx, path+"~") },
				remove:    func(ctx context.Context, path string) error { return ws.Remove(ctx, path+"~") },
			}
		}), also: []string{"C1", "F1", "F2", "F3", "F4", "F6", "F8", "F10"}},
		{check: "F9_FilesSeeWhatCommandsDid", fault: "remembers what it read", bend: func(o *Options) {
			var read memory[[]byte]
			bendFiles(func(ws workspace.Workspace) *bent {
				return &bent{readFile: func(ctx context.Context, path string) ([]byte, error) {
					if b, ok := read.get(path); ok {
						return b, nil
					}
					b, err := ws.ReadFile(ctx, path)
					if err == nil {
						read.put(path, b)
					}
					return b, err
				}}
			})(o)
		}, also: []string{"L3", "L4", "F1", "F2", "F10"}},
		{check: "F9_BothAreTheSameUser", fault: "commands are another user", bend: bendResult(func(cmd workspace.Command, res *workspace.Result, err error) (*workspace.Result, error) {
			if err == nil && slices.Contains(cmd.Args, "owner") {
				owner, _, _ := strings.Cut(string(res.Stdout), " ")
				res.Stdout = []byte(owner + " 12345\n")
			}
			return res, err
		})},
	}
}

// bendReads changes options of reads.
func bendReads(change func(*workspace.ReadOptions)) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{open: func(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
			change(&opts)
			return ws.Open(ctx, path, opts)
		}}
	})
}

func optionalMutants() []mutant {
	return []mutant{
		{check: "F10_Rename", fault: "leaves the old name", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{rename: func(ctx context.Context, from, to string) error {
				data, rerr := ws.ReadFile(ctx, from)
				if err := ws.Rename(ctx, from, to); err != nil || rerr != nil {
					return err
				}
				return ws.WriteFile(ctx, from, data)
			}}
		})},
		{check: "F10_Rename", fault: "replaces a full directory", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{rename: func(ctx context.Context, from, to string) error {
				if info, err := ws.Stat(ctx, from); err == nil && info.IsDir() && path.Base(to) == "full" {
					if err := ws.RemoveAll(ctx, to); err != nil {
						return err
					}
				}
				return ws.Rename(ctx, from, to)
			}}
		})},
		{check: "F10_SymlinkAndReadlink", fault: "cleans the target", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{symlink: func(ctx context.Context, target, name string) error {
				return ws.Symlink(ctx, path.Clean(target), name)
			}}
		})},
		{check: "F10_SymlinkAndReadlink", fault: "replaces what is there", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{symlink: func(ctx context.Context, target, name string) error {
				if info, err := ws.Lstat(ctx, name); err == nil && !info.IsDir() {
					if err := ws.Remove(ctx, name); err != nil {
						return err
					}
				}
				return ws.Symlink(ctx, target, name)
			}}
		})},
		{check: "F10_Chmod", fault: "gives no rights to others", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{chmod: func(ctx context.Context, path string, mode fs.FileMode) error { return ws.Chmod(ctx, path, mode&0o700) }}
		})},
		{check: "F10_Chtimes", fault: "forgets the time of a write", bend: bendCreate(func(o *workspace.WriteOptions) { o.ModTime = time.Time{} })},
		{check: "F10_ExclusiveCreate", fault: "overwrites", bend: bendCreate(func(o *workspace.WriteOptions) { o.Exclusive = false })},
		{check: "F10_ExclusiveCreate", fault: "looks first and then writes", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{create: func(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
				if _, err := ws.Lstat(ctx, path); opts.Exclusive && err == nil {
					return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrExist}
				}
				pause(50 * time.Millisecond)
				opts.Exclusive = false
				return ws.Create(ctx, path, opts)
			}}
		})},
		{check: "F10_Append", fault: "overwrites", bend: bendCreate(func(o *workspace.WriteOptions) { o.Append = false })},
		{check: "F10_AbsentFeaturesAreUnsupported", fault: "says that it did it", on: filesOnly, bend: everyHandle(func(ws workspace.Workspace) workspace.Workspace {
			return &bent{Workspace: ws, run: func(ctx context.Context, cmd workspace.Command) (*workspace.Result, error) {
				res, err := ws.Run(ctx, cmd)
				if errors.Is(err, errors.ErrUnsupported) {
					return &workspace.Result{}, nil
				}
				return res, err
			}}
		})},
	}
}
