package shellfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/shared/workspace"
)

// errChanged is a listing whose parts do not fit together, because the directory
// changed meanwhile.
var errChanged = errors.New("the directory changed while it was listed")

// timeLayout is what stat's %y writes in UTC.
const timeLayout = "2006-01-02 15:04:05.999999999 -0700"

// parseInfo reads a line of stat: mode in hexadecimal, size, time. A target says
// that the entry itself is a link, as does its mode.
func parseInfo(name, about, target string) (workspace.FileInfo, error) {
	fields := strings.SplitN(strings.TrimSuffix(about, "\n"), " ", 3)
	if len(fields) != 3 {
		return workspace.FileInfo{}, fmt.Errorf("the workspace's stat says %.100q", about)
	}
	raw, err := strconv.ParseUint(fields[0], 16, 32)
	size, sizeErr := strconv.ParseInt(fields[1], 10, 64)
	at, timeErr := time.Parse(timeLayout, fields[2])
	if err := errors.Join(err, sizeErr, timeErr); err != nil {
		return workspace.FileInfo{}, fmt.Errorf("the workspace's stat says %.100q: %w", about, err)
	}
	info := workspace.FileInfo{Name: name, Size: size, Mode: fileMode(uint32(raw)), ModTime: at, Target: target}
	info.Link = target != "" || info.Mode&fs.ModeSymlink != 0
	return info, nil
}

// The bits of st_mode, the same on every Linux.
const (
	modeType = 0xf000
	typeFIFO = 0x1000
	typeChar = 0x2000
	typeDir  = 0x4000
	typeBlk  = 0x6000
	typeReg  = 0x8000
	typeLink = 0xa000
	typeSock = 0xc000
	bitSetID = 0o4000
	bitGroup = 0o2000
	bitStick = 0o1000
)

func fileMode(raw uint32) fs.FileMode {
	mode := fs.FileMode(raw & 0o777)
	switch raw & modeType {
	case typeReg:
	case typeDir:
		mode |= fs.ModeDir
	case typeLink:
		mode |= fs.ModeSymlink
	case typeFIFO:
		mode |= fs.ModeNamedPipe
	case typeSock:
		mode |= fs.ModeSocket
	case typeChar:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case typeBlk:
		mode |= fs.ModeDevice
	default:
		mode |= fs.ModeIrregular
	}
	for bit, m := range map[uint32]fs.FileMode{bitSetID: fs.ModeSetuid, bitGroup: fs.ModeSetgid, bitStick: fs.ModeSticky} {
		if raw&bit != 0 {
			mode |= m
		}
	}
	return mode
}

// octal is a mode for chmod. With five digits GNU's clears what it would keep on a
// directory otherwise.
func octal(mode fs.FileMode) string {
	raw := uint32(mode.Perm())
	for bit, m := range map[uint32]fs.FileMode{bitSetID: fs.ModeSetuid, bitGroup: fs.ModeSetgid, bitStick: fs.ModeSticky} {
		if mode&m != 0 {
			raw |= bit
		}
	}
	return fmt.Sprintf("%05o", raw)
}

// baseName is the last element of a path, as path.Base has it.
func baseName(path string) string {
	trimmed, _ := trim(path)
	return trimmed[strings.LastIndexByte(trimmed, '/')+1:]
}

// parseListing reads what op_readdir says.
func parseListing(out []byte, slow bool) ([]workspace.FileInfo, error) {
	if len(out) == 0 {
		return nil, nil
	}
	r := records{rest: string(out)}
	var infos []workspace.FileInfo
	var err error
	if slow {
		infos, err = r.slowEntries()
	} else {
		infos, err = r.entries()
	}
	if err != nil {
		return nil, err
	}
	at := make(map[string]int, len(infos))
	for i, info := range infos {
		at[info.Name] = i
	}
	for !r.done() {
		name, target, about := r.next(), r.next(), r.next()
		i, ok := at[name]
		if !ok {
			continue // it came after
		}
		if infos[i].Mode&fs.ModeSymlink == 0 {
			return nil, errChanged
		}
		infos[i].Target = target
		if about == "" { // it leads nowhere
			continue
		}
		if infos[i], err = parseInfo(name, about, target); err != nil {
			return nil, err
		}
		infos[i].Link = true
	}
	if r.short {
		return nil, errors.New("the listing was cut short")
	}
	return infos, nil
}

// records are texts that end in NUL.
type records struct {
	rest  string
	short bool // one had no end
}

func (r *records) done() bool { return r.rest == "" || r.short }

func (r *records) next() string {
	text, rest, ok := strings.Cut(r.rest, "\x00")
	r.rest = rest
	if !ok {
		r.short = true
	}
	return text
}

// entries reads names, and then as many lines of stat.
func (r *records) entries() ([]workspace.FileInfo, error) {
	var infos []workspace.FileInfo
	for name := r.next(); name != ""; name = r.next() {
		infos = append(infos, workspace.FileInfo{Name: name})
	}
	lines := strings.Split(strings.TrimSuffix(r.next(), "\n"), "\n")
	if len(lines) != len(infos) {
		return nil, errChanged
	}
	for i, line := range lines {
		var err error
		if infos[i], err = parseInfo(infos[i].Name, line, ""); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

// slowEntries reads names, each with its line of stat. One that went away
// meanwhile has none.
func (r *records) slowEntries() ([]workspace.FileInfo, error) {
	var infos []workspace.FileInfo
	for name := r.next(); name != ""; name = r.next() {
		about := r.next()
		if about == "" {
			continue
		}
		info, err := parseInfo(name, about, "")
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}
