package wire

import (
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// The bits of a POSIX st_mode, which Linux, macOS and the wire share.
const (
	sIFMT   = 0o170000 // the mask; as a type, one that is none of these
	sIFSOCK = 0o140000
	sIFLNK  = 0o120000
	sIFREG  = 0o100000
	sIFBLK  = 0o060000
	sIFDIR  = 0o040000
	sIFCHR  = 0o020000
	sIFIFO  = 0o010000
	sISUID  = 0o4000
	sISGID  = 0o2000
	sISVTX  = 0o1000
)

// FromFileMode writes a Go mode as a POSIX st_mode.
func FromFileMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	switch mode.Type() {
	case 0:
		bits |= sIFREG
	case fs.ModeDir:
		bits |= sIFDIR
	case fs.ModeSymlink:
		bits |= sIFLNK
	case fs.ModeNamedPipe:
		bits |= sIFIFO
	case fs.ModeSocket:
		bits |= sIFSOCK
	case fs.ModeDevice:
		bits |= sIFBLK
	case fs.ModeDevice | fs.ModeCharDevice:
		bits |= sIFCHR
	default:
		bits |= sIFMT // not 0, which reads as a regular file
	}
	if mode&fs.ModeSetuid != 0 {
		bits |= sISUID
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= sISGID
	}
	if mode&fs.ModeSticky != 0 {
		bits |= sISVTX
	}
	return bits
}

// ToFileMode reads a POSIX st_mode. A type that Go does not know is irregular.
func ToFileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits) & fs.ModePerm
	switch bits & sIFMT {
	case sIFREG, 0:
	case sIFDIR:
		mode |= fs.ModeDir
	case sIFLNK:
		mode |= fs.ModeSymlink
	case sIFIFO:
		mode |= fs.ModeNamedPipe
	case sIFSOCK:
		mode |= fs.ModeSocket
	case sIFBLK:
		mode |= fs.ModeDevice
	case sIFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	default:
		mode |= fs.ModeIrregular
	}
	if bits&sISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if bits&sISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if bits&sISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// FromTime writes a time; the zero time is absent.
func FromTime(t time.Time) *berthv1.Time {
	if t.IsZero() {
		return nil
	}
	return &berthv1.Time{Seconds: t.Unix(), Nanos: int32(t.Nanosecond())} //nolint:gosec // below 1e9
}

// ToTime reads a time; an absent one is the zero time.
func ToTime(t *berthv1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.Unix(t.GetSeconds(), int64(t.GetNanos()))
}

// FromFileInfo writes what is known of a file.
func FromFileInfo(i workspace.FileInfo) *berthv1.FileInfo {
	return &berthv1.FileInfo{
		Name:    []byte(i.Name),
		Size:    i.Size,
		Mode:    FromFileMode(i.Mode),
		ModTime: FromTime(i.ModTime),
		Link:    i.Link,
		Target:  []byte(i.Target),
	}
}

// ToFileInfo reads what is known of a file.
func ToFileInfo(i *berthv1.FileInfo) workspace.FileInfo {
	return workspace.FileInfo{
		Name:    string(i.GetName()),
		Size:    i.GetSize(),
		Mode:    ToFileMode(i.GetMode()),
		ModTime: ToTime(i.GetModTime()),
		Link:    i.GetLink(),
		Target:  string(i.GetTarget()),
	}
}

// FromEnv writes variables sorted by name.
func FromEnv(env map[string]string) []*berthv1.EnvVar {
	vars := make([]*berthv1.EnvVar, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		vars = append(vars, &berthv1.EnvVar{Name: []byte(name), Value: []byte(env[name])})
	}
	return vars
}

// ToEnv reads variables; later ones win.
func ToEnv(vars []*berthv1.EnvVar) map[string]string {
	env := make(map[string]string, len(vars))
	for _, v := range vars {
		env[string(v.GetName())] = string(v.GetValue())
	}
	return env
}

// FromBytesList writes strings of any bytes. None are nil.
func FromBytesList(list []string) [][]byte {
	if len(list) == 0 {
		return nil
	}
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// ToBytesList is the inverse of [FromBytesList].
func ToBytesList(list [][]byte) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

// FromFeatures writes a set of features, sorted.
func FromFeatures(features workspace.Features) []string {
	var names []string
	for _, f := range slices.Sorted(maps.Keys(features)) {
		if features[f] {
			names = append(names, string(f))
		}
	}
	return names
}

// ToFeatures reads a set of features.
func ToFeatures(names []string) workspace.Features {
	features := make(workspace.Features, len(names))
	for _, name := range names {
		features[workspace.Feature(name)] = true
	}
	return features
}
