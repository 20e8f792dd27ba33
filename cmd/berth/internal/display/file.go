package display

import (
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// File is a workspace's file in JSON. Names and targets that are not UTF-8 have
// their bytes in the member beside them, and U+FFFD in place of the bad ones.
type File struct {
	Name      string     `json:"name"`
	NameB64   []byte     `json:"name_b64,omitempty"`
	Type      string     `json:"type"`
	Link      bool       `json:"link"`
	Target    *string    `json:"target,omitempty"`
	TargetB64 []byte     `json:"target_b64,omitempty"`
	Size      int64      `json:"size"`
	Mode      string     `json:"mode"`
	ModTime   *time.Time `json:"mod_time,omitempty"`
}

// NewFile returns the JSON form of info. Its type, size and mode are those of
// what a link leads to where info says so.
func NewFile(info workspace.FileInfo) File {
	file := File{
		Name: info.Name, NameB64: Inexact(info.Name), Type: FileType(info.Mode), Link: info.Link,
		Size: info.Size, Mode: Permissions(info.Mode),
	}
	if info.Link {
		file.Target, file.TargetB64 = &info.Target, Inexact(info.Target)
	}
	if !info.ModTime.IsZero() {
		t := info.ModTime.UTC()
		file.ModTime = &t
	}
	return file
}

// FileHeading is that of the table of files.
var FileHeading = []string{"MODE", "SIZE", "MODIFIED", "NAME"}

// FileRow is one file in a listing, under name.
func FileRow(name string, info workspace.FileInfo) Row {
	shown := Name(name)
	if info.Link {
		shown += " -> " + Name(info.Target)
	}
	object := NewFile(info)
	object.Name, object.NameB64 = name, Inexact(name)
	return Row{
		Name:   name,
		Cells:  []string{LongMode(info), strconv.FormatInt(info.Size, 10), Time(info.ModTime), shown},
		Object: object,
	}
}

// FileType names the kind of file in a word.
func FileType(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "dir"
	case fs.ModeSymlink:
		return "link"
	case fs.ModeNamedPipe:
		return "fifo"
	case fs.ModeSocket:
		return "socket"
	default:
		return "device"
	}
}

// Permissions are the octal digits that chmod takes.
func Permissions(mode fs.FileMode) string {
	bits := mode.Perm()
	special := 0
	for _, s := range []struct {
		bit   fs.FileMode
		octal int
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if mode&s.bit != 0 {
			special |= s.octal
		}
	}
	return fmt.Sprintf("%04o", special|int(bits))
}

// LongMode is a file's type and permissions as in ls -l. A link is an l before
// the permissions of what it leads to.
func LongMode(info workspace.FileInfo) string {
	kind := map[string]string{"file": "-", "dir": "d", "link": "l", "fifo": "p", "socket": "s", "device": "c"}[FileType(info.Mode)]
	if info.Link {
		kind = "l"
	}
	return kind + info.Mode.Perm().String()[1:]
}

// Time is a moment in a table, and - for one that is not known.
func Time(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}
