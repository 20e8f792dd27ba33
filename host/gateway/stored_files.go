package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/berth-dev/berth/host/gateway/internal/session"
)

// storedFiles reads what is kept of a session, below its working directory.
type storedFiles struct {
	files *session.Stored
	most  int64
	root  string // without links, once known
}

// resolve finds a path that a client gave: relative to the working directory, or
// absolute in it. One that is absolute elsewhere is taken as if it were relative,
// and so is not there. It returns the path below the working directory, and the
// whole one. Neither a link nor .. leads out.
func (s *storedFiles) resolve(ctx context.Context, asked string) (below, whole string, err error) {
	if strings.IndexByte(asked, 0) >= 0 {
		return "", "", errText(http.StatusBadRequest, "the path holds a NUL byte")
	}
	if slices.Contains(strings.Split(asked, "/"), "..") {
		return "", "", errText(http.StatusBadRequest, plain(fmt.Sprintf("the path %s may not hold ..", asked)))
	}
	if s.root == "" {
		if s.root, err = s.files.RealPath(ctx, "."); err != nil {
			return "", "", err
		}
	}
	below = path.Clean(asked)
	if strings.HasPrefix(below, "/") {
		rest, inside := strings.CutPrefix(below+"/", strings.TrimRight(s.root, "/")+"/")
		if !inside {
			rest = strings.TrimLeft(below, "/")
		}
		below = path.Clean(strings.Trim(rest, "/"))
	}
	whole = path.Join(s.root, below)
	resolved, err := s.files.RealPath(ctx, whole)
	switch {
	case errors.Is(err, syscall.ELOOP), err == nil && resolved != whole:
		return "", "", errText(http.StatusBadRequest, plain(asked+" is, or leads through, a symbolic link"))
	case err != nil:
		return "", "", s.refused(asked, err)
	}
	return below, whole, nil
}

// refused is an error about a path in words: a 404 of these calls is no session that
// is missing.
func (s *storedFiles) refused(asked string, err error) error {
	var pathErr *fs.PathError
	if !errors.As(err, &pathErr) {
		return err
	}
	return errText(http.StatusBadRequest, plain(asked+": "+pathErr.Err.Error()))
}

// list lists a folder: folders first, then by name. Links are left out.
func (s *storedFiles) list(ctx context.Context, asked string) (entryList, error) {
	entries, unnamed, err := s.scan(ctx, asked)
	if err == nil && unnamed {
		return nil, errText(http.StatusConflict, plain(asked+" holds a name that is not UTF-8"))
	}
	return entries, err
}

// scan is list, without what JSON cannot name.
func (s *storedFiles) scan(ctx context.Context, asked string) (_ entryList, unnamed bool, _ error) {
	below, whole, err := s.resolve(ctx, asked)
	if err != nil {
		return nil, false, err
	}
	infos, err := s.files.ReadDir(ctx, whole)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, false, errText(http.StatusNotFound, plain("no such folder: "+below))
	case err != nil:
		return nil, false, s.refused(asked, err)
	}
	entries := make(entryList, 0, len(infos))
	for _, info := range infos {
		switch {
		case info.Link:
		case !utf8.ValidString(info.Name):
			unnamed = true
		default:
			entries = append(entries, entryAt(path.Join(below, info.Name), info.Name, info))
		}
	}
	slices.SortStableFunc(entries, func(a, b fileEntry) int {
		if a.IsDir != b.IsDir {
			if a.IsDir {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return entries, unnamed, nil
}

// tree lists a folder and those below it, level by level.
func (s *storedFiles) tree(ctx context.Context, asked string, maxDepth, maxEntries int) (treeAnswer, error) {
	out := treeAnswer{Entries: entryList{}}
	level := []string{asked}
	for depth := 1; len(level) > 0; depth++ {
		var next []string
		for _, dir := range level {
			entries, unnamed, err := s.scan(ctx, dir)
			if err != nil {
				var wire *wireError
				if depth == 1 || !errors.As(err, &wire) {
					return treeAnswer{}, err
				}
				out.Truncated = true // it was removed or replaced meanwhile, or is not to be read
				continue
			}
			out.Truncated = out.Truncated || unnamed
			for _, e := range entries {
				if len(out.Entries) == maxEntries {
					out.Truncated = true
					return out, nil
				}
				out.Entries = append(out.Entries, e)
				switch {
				case !e.IsDir:
				case depth < maxDepth:
					next = append(next, e.Path)
				default:
					out.Truncated = true
				}
			}
		}
		level = next
	}
	return out, nil
}

// read reads a whole file.
func (s *storedFiles) read(ctx context.Context, asked string) ([]byte, error) {
	below, whole, err := s.resolve(ctx, asked)
	if err != nil {
		return nil, err
	}
	data, err := readFile(ctx, s.files, whole, s.most)
	var wire *wireError
	switch {
	case errors.As(err, &wire):
		return nil, errText(http.StatusBadRequest, wire.Error())
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return nil, errText(http.StatusNotFound, plain("no such file: "+below))
	case err != nil:
		return nil, s.refused(asked, err)
	}
	return data, nil
}

// textLines are lines of a text, which ends with a word of what is left.
func textLines(data []byte, offset, limit int) (string, error) {
	if strings.IndexByte(string(data[:min(len(data), 8<<10)]), 0) >= 0 {
		return "", errText(http.StatusBadRequest, "the file holds no text")
	}
	lines := splitLines(decoded(data))
	if offset >= len(lines) {
		return "[end of the file]", nil
	}
	end := min(len(lines), offset+min(limit, len(lines)))
	text := strings.Join(lines[offset:end], "\n")
	if end < len(lines) {
		text += fmt.Sprintf("\n\n[%d more lines, from offset %d]", len(lines)-end, end)
	}
	return text, nil
}

// splitLines splits at \n, \r and \r\n. The last line need not end with one.
func splitLines(text string) []string {
	var lines []string
	for text != "" {
		i := strings.IndexAny(text, "\r\n")
		if i < 0 {
			return append(lines, text)
		}
		lines = append(lines, text[:i])
		if strings.HasPrefix(text[i:], "\r\n") {
			i++
		}
		text = text[i+1:]
	}
	return lines
}
