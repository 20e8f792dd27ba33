package conformance

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// another returns err as an error of another kind about the same path.
func another(from, to error) func(*Options) {
	return bendError(func(path string, err error) error {
		if errors.Is(err, from) {
			return &fs.PathError{Op: "call", Path: path, Err: to}
		}
		return err
	})
}

// noError takes away errors of one kind.
func noError(kind error) func(*Options) {
	return bendError(func(_ string, err error) error {
		if errors.Is(err, kind) {
			return nil
		}
		return err
	})
}

// bendCreate changes options of writes.
func bendCreate(change func(*workspace.WriteOptions)) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{create: func(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
			change(&opts)
			return ws.Create(ctx, path, opts)
		}}
	})
}

// bendInfos changes what Stat tells.
func bendNames(change func(string) string) func(*Options) {
	return bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
		for i := range entries {
			entries[i].Name = change(entries[i].Name)
		}
		return entries
	})
}

// before does something before WriteFile.
func beforeWrite(do func(ctx context.Context, ws workspace.Workspace, path string) error) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{writeFile: func(ctx context.Context, path string, data []byte) error {
			if err := do(ctx, ws, path); err != nil {
				return err
			}
			return ws.WriteFile(ctx, path, data)
		}}
	})
}

// afterWrite does something after WriteFile.
func afterWrite(do func(ctx context.Context, ws workspace.Workspace, path string) error) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{writeFile: func(ctx context.Context, path string, data []byte) error {
			if err := ws.WriteFile(ctx, path, data); err != nil {
				return err
			}
			return do(ctx, ws, path)
		}}
	})
}

// bentFS is an fs.FS whose listings are changed.
type bentFS struct {
	fs.FS
	change func(fsys fs.FS, dir string, entries []fs.DirEntry) []fs.DirEntry
}

func (f bentFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.FS, name)
	return f.change(f.FS, name, entries), err
}

func bendFS(change func(fsys fs.FS, dir string, entries []fs.DirEntry) []fs.DirEntry) func(*Options) {
	return bendFiles(func(ws workspace.Workspace) *bent {
		return &bent{fs: func(ctx context.Context) fs.FS { return bentFS{ws.FS(ctx), change} }}
	})
}

func fileMutants() []mutant {
	return slices.Concat(writeMutants(), fileErrorMutants(), listMutants(), treeMutants(), streamMutants(), optionalMutants())
}

func writeMutants() []mutant {
	return []mutant{
		{check: "F1_NamesHoldAnything", fault: "trims names", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{writeFile: func(ctx context.Context, path string, data []byte) error {
				return ws.WriteFile(ctx, strings.TrimRight(path, " "), data)
			}}
		})},
		{check: "F1_NamesHoldAnything", fault: "lists names as valid text", bend: bendNames(func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }), also: []string{"F9"}},
		{check: "F1_NamesHoldAnything", fault: "lists quoted names", bend: bendNames(func(s string) string {
			if strings.ContainsAny(s, " '$\"") {
				return "'" + s + "'"
			}
			return s
		})},
		{check: "F1_NamesHoldAnything", fault: "lists one name as two", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			var all []workspace.FileInfo
			for _, entry := range entries {
				for name := range strings.SplitSeq(entry.Name, "\n") {
					entry.Name = name
					all = append(all, entry)
				}
			}
			return all
		})},
		{check: "F1_RelativePathsBeginAtWorkingDirectory", fault: "relative paths begin elsewhere", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{readFile: func(ctx context.Context, name string) ([]byte, error) {
				if !path.IsAbs(name) {
					name = "../" + name
				}
				return ws.ReadFile(ctx, name)
			}}
		}), also: []string{"L3", "L4", "F3"}},
		{check: "F2_ContentIsExact", fault: "drops the last byte", bend: bendContent(func(b []byte) []byte { return b[:max(len(b)-1, 0)] }),
			also: []string{"L2", "L3", "L4", "L6", "F1", "F4", "F7", "F8", "F10"}},
		{check: "F2_ContentIsExact", fault: "adds a newline", bend: bendContent(func(b []byte) []byte { return append(b, '\n') }),
			also: []string{"L2", "L3", "L4", "L6", "F1", "F4", "F7", "F8", "F10"}},
		{check: "F2_ContentIsExact", fault: "drops carriage returns", bend: bendContent(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")) }), also: []string{"F8"}},
		{check: "F2_ContentIsExact", fault: "makes it valid text", bend: bendContent(func(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("?")) }), also: []string{"F8", "F10"}},
		{check: "F2_WriteReplacesAll", fault: "leaves the end of what was longer", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{writeFile: func(ctx context.Context, path string, data []byte) error {
				if old, err := ws.ReadFile(ctx, path); err == nil && len(old) > len(data) {
					data = append(bytes.Clone(data), old[len(data):]...)
				}
				return ws.WriteFile(ctx, path, data)
			}}
		})},
		{check: "F2_WriteMakesParents", fault: "makes no parents", bend: beforeWrite(func(ctx context.Context, ws workspace.Workspace, name string) error {
			_, err := ws.Stat(ctx, path.Dir(name))
			if errors.Is(err, fs.ErrNotExist) {
				return &fs.PathError{Op: "write", Path: name, Err: fs.ErrNotExist}
			}
			return nil
		}), also: []string{"F4", "F5", "F6", "F10"}},
		{check: "F2_WriteMakesParents", fault: "makes them 0700", bend: beforeWrite(func(ctx context.Context, ws workspace.Workspace, name string) error {
			dir := path.Dir(name)
			if _, err := ws.Stat(ctx, dir); !errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err := ws.MkdirAll(ctx, dir); err != nil {
				return err
			}
			return ws.Chmod(ctx, dir, 0o700)
		})},
		{check: "F2_WriteGoesThroughALink", fault: "replaces the link", bend: beforeWrite(func(ctx context.Context, ws workspace.Workspace, name string) error {
			if info, err := ws.Lstat(ctx, name); err == nil && info.Link {
				return ws.Remove(ctx, name)
			}
			return nil
		})},
		{check: "F2_NewFileHasItsMode", fault: "ignores the mode", bend: bendCreate(func(o *workspace.WriteOptions) { o.Mode = 0 }), also: []string{"F10"}},
		{check: "F2_NewFileHasItsMode", fault: "0600 unless told", bend: afterWrite(func(ctx context.Context, ws workspace.Workspace, path string) error {
			return ws.Chmod(ctx, path, 0o600)
		})},
		{check: "F2_WriteKeepsTheMode", fault: "sets 0644 again", bend: afterWrite(func(ctx context.Context, ws workspace.Workspace, path string) error {
			return ws.Chmod(ctx, path, 0o644)
		})},
		{check: "F2_AbortedWriteLeavesNothing", fault: "an aborted write is published", hangs: true, bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{create: func(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
				w, err := ws.Create(ctx, path, opts)
				if err != nil {
					return nil, err
				}
				return &bentWriter{FileWriter: w, abort: w.Close}, nil
			}}
		}), also: []string{"F10"}},
		{check: "F2_NothingShowsBeforeClose", fault: "writes in place", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{create: func(ctx context.Context, path string, opts workspace.WriteOptions) (workspace.FileWriter, error) {
				w, err := ws.Create(ctx, path, opts)
				if err != nil {
					return nil, err
				}
				return &bentWriter{FileWriter: w, write: func(b []byte) (int, error) {
					if err := ws.WriteFile(ctx, path, b); err != nil {
						return 0, err
					}
					return w.Write(b)
				}}, nil
			}}
		}), also: []string{"F10"}},
	}
}

func fileErrorMutants() []mutant {
	return []mutant{
		{check: "F3_MissingIsNotExist", fault: "an error without its path", bend: bendError(func(_ string, err error) error {
			var pathErr *fs.PathError
			if errors.As(err, &pathErr) {
				return pathErr.Err
			}
			return err
		}), also: []string{"C1", "F2", "F4", "F5", "F6"}},
		{check: "F3_MissingIsNotExist", fault: "the error has another path", bend: bendError(func(path string, err error) error {
			var pathErr *fs.PathError
			if errors.As(err, &pathErr) {
				return &fs.PathError{Op: pathErr.Op, Path: "/work" + path, Err: pathErr.Err}
			}
			return err
		}), also: []string{"C1", "F2", "F5", "F6", "F4"}},
		{check: "F3_MissingIsNotExist", fault: "a missing file is empty", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{readFile: func(ctx context.Context, path string) ([]byte, error) {
				b, err := ws.ReadFile(ctx, path)
				if errors.Is(err, fs.ErrNotExist) {
					return nil, nil
				}
				return b, err
			}}
		})},
		{check: "F3_DirectoryIsEISDIR", fault: "a directory reads as nothing", bend: noError(syscall.EISDIR)},
		{check: "F3_BelowAFileIsENOTDIR", fault: "is not there", bend: another(syscall.ENOTDIR, fs.ErrNotExist)},
		{check: "F3_LoopIsELOOP", fault: "is not there", bend: another(syscall.ELOOP, fs.ErrNotExist)},
		{check: "F3_LongNameIsENAMETOOLONG", fault: "is not there", bend: another(syscall.ENAMETOOLONG, fs.ErrNotExist)},
		{check: "F3_ForbiddenIsErrPermission", fault: "is not there", unprivileged: true, bend: another(fs.ErrPermission, fs.ErrNotExist)},
		{check: "F3_SpecialFilesNeverWait", fault: "waits for a writer", hangs: true, bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{open: func(ctx context.Context, path string, opts workspace.ReadOptions) (workspace.FileReader, error) {
				if info, err := ws.Stat(ctx, path); err == nil && info.Mode.Type() == fs.ModeNamedPipe {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return ws.Open(ctx, path, opts)
			}}
		})},
	}
}

func listMutants() []mutant {
	return []mutant{
		{check: "F4_StatFollowsAndLstatDoesNot", fault: "lstat follows", bend: bendFiles(func(ws workspace.Workspace) *bent { return &bent{lstat: ws.Stat} }), also: []string{"F10"}},
		{check: "F4_StatFollowsAndLstatDoesNot", fault: "stat does not follow", bend: bendFiles(func(ws workspace.Workspace) *bent { return &bent{stat: ws.Lstat} })},
		{check: "F4_ListingTellsLinksAndWhereTheyLead", fault: "lists nothing behind a link", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{readDir: func(ctx context.Context, dir string) ([]workspace.FileInfo, error) {
				if i, err := ws.Lstat(ctx, dir); err == nil && i.Link {
					return nil, nil
				}
				return ws.ReadDir(ctx, dir)
			}}
		})},
		{check: "F4_ListingIsCompleteAndSorted", fault: "leaves out hidden names", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			return slices.DeleteFunc(entries, func(i workspace.FileInfo) bool { return strings.HasPrefix(i.Name, ".") })
		})},
		{check: "F4_ListingTellsLinksAndWhereTheyLead", fault: "leaves out dangling links", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			return slices.DeleteFunc(entries, func(i workspace.FileInfo) bool { return i.Mode.Type() == fs.ModeSymlink })
		})},
		{check: "F4_ListingTellsLinksAndWhereTheyLead", fault: "does not tell links", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			for i := range entries {
				entries[i].Link, entries[i].Target = false, ""
			}
			return entries
		})},
		{check: "F4_ListingTellsLinksAndWhereTheyLead", fault: "a link to a directory is none", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			for i := range entries {
				if entries[i].Link {
					entries[i].Mode = fs.ModeSymlink | 0o777
				}
			}
			return entries
		})},
		{check: "F4_ListingIsCompleteAndSorted", fault: "sorts as people do", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			slices.SortStableFunc(entries, func(a, b workspace.FileInfo) int {
				return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
			})
			return entries
		})},
		{check: "F4_ListingIsCompleteAndSorted", fault: "stops after 500", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			return entries[:min(len(entries), 500)]
		})},
		{check: "F4_ListingIsCompleteAndSorted", fault: "lists a name twice", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			if len(entries) > 256 {
				entries = slices.Insert(entries, 256, entries[255])
			}
			return entries
		})},
		{check: "F4_ListingTellsWhatStatTells", fault: "tells no size", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			for i := range entries {
				entries[i].Size = 0
			}
			return entries
		})},
		{check: "F4_ListingTellsWhatStatTells", fault: "tells no time", bend: bendEntries(func(entries []workspace.FileInfo) []workspace.FileInfo {
			for i := range entries {
				entries[i].ModTime = time.Time{}
			}
			return entries
		})},
		{check: "F4_AWalkEnds", fault: "an entry's type is what it leads to", bend: bendFS(func(fsys fs.FS, dir string, entries []fs.DirEntry) []fs.DirEntry {
			for i, entry := range entries {
				if info, err := fs.Stat(fsys, path.Join(dir, entry.Name())); err == nil {
					entries[i] = fs.FileInfoToDirEntry(info)
				}
			}
			return entries
		})},
		{check: "F4_FSIsAnFS", fault: "leaves out an entry", bend: bendFS(func(_ fs.FS, _ string, entries []fs.DirEntry) []fs.DirEntry {
			return entries[:max(len(entries)-1, 0)]
		})},
		{check: "F4_RemovalFollowsNoLink", fault: "empties what a link leads to", bend: bendFiles(func(ws workspace.Workspace) *bent {
			return &bent{remove: func(ctx context.Context, path string) error {
				entries, _ := ws.ReadDir(ctx, path)
				for _, entry := range entries {
					below, _ := ws.ReadDir(ctx, join(path, entry.Name))
					if !entry.Link {
						continue
					}
					for _, file := range below {
						if err := ws.Remove(ctx, join(join(path, entry.Name), file.Name)); err != nil {
							return err
						}
					}
				}
				return ws.Remove(ctx, path)
			}}
		})},
	}
}
