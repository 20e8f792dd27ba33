package wire_test

import (
	"io/fs"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// fileTypes are those of POSIX, with the S_IFMT that each has.
var fileTypes = map[fs.FileMode]uint32{
	0:                                 0o100000,
	fs.ModeDir:                        0o040000,
	fs.ModeSymlink:                    0o120000,
	fs.ModeNamedPipe:                  0o010000,
	fs.ModeSocket:                     0o140000,
	fs.ModeDevice:                     0o060000,
	fs.ModeDevice | fs.ModeCharDevice: 0o020000,
	fs.ModeIrregular:                  0o170000,
}

func TestFileModeRoundTrip(t *testing.T) {
	special := map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000}
	for kind, ifmt := range fileTypes {
		for bits := range uint32(0o10000) {
			mode, want := kind|fs.FileMode(bits&0o777), ifmt|bits
			for goBit, bit := range special {
				if bits&bit != 0 {
					mode |= goBit
				}
			}
			if got := wire.FromFileMode(mode); got != want {
				t.Fatalf("FromFileMode(%v) = %o, want %o", mode, got, want)
			}
			if got := wire.ToFileMode(want); got != mode {
				t.Fatalf("ToFileMode(%o) = %v, want %v", want, got, mode)
			}
		}
	}
}

// Every st_mode that a peer may send has a mode, and that one is stable.
func TestFileModeOfAnyBits(t *testing.T) {
	for bits := range uint32(1 << 16) {
		mode := wire.ToFileMode(bits)
		if got := wire.ToFileMode(wire.FromFileMode(mode)); got != mode {
			t.Fatalf("%o is %v, and then %v", bits, mode, got)
		}
		_, known := fileTypes[mode.Type()]
		if !known {
			t.Fatalf("%o is %v", bits, mode)
		}
		if mode.IsRegular() != (bits&0o170000 == 0o100000 || bits&0o170000 == 0) {
			t.Fatalf("%o is %v", bits, mode)
		}
	}
	if got := wire.ToFileMode(math.MaxUint32); got != fs.ModeIrregular|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky|0o777 {
		t.Errorf("all bits are %v", got)
	}
	// Bits that only Go has do not cross, and types that do not go together are
	// never a regular file.
	if got := wire.FromFileMode(fs.ModeAppend | fs.ModeExclusive | fs.ModeTemporary | 0o644); got != 0o100644 {
		t.Errorf("Go's own bits are %o", got)
	}
	if got := wire.ToFileMode(wire.FromFileMode(fs.ModeDir | fs.ModeSymlink)); got != fs.ModeIrregular {
		t.Errorf("two types are %v", got)
	}
}

func TestTimeRoundTrip(t *testing.T) {
	for _, want := range []time.Time{
		{},
		time.Unix(0, 0),
		time.Unix(0, 1),
		time.Unix(-1, 999_999_999),
		time.Unix(-1<<40, 1),
		time.Date(1969, 12, 31, 23, 59, 59, 999, time.UTC),
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
		time.Date(-290_000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2038, 1, 19, 3, 14, 8, 0, time.UTC),
		time.Date(292_277_000, 1, 1, 0, 0, 0, 7, time.UTC),
		time.Date(2026, 2, 3, 4, 5, 6, 7, time.FixedZone("x", 3600)),
	} {
		data, err := proto.Marshal(&berthv1.FileInfo{ModTime: wire.FromTime(want)})
		if err != nil {
			t.Fatal(err)
		}
		var info berthv1.FileInfo
		if err := proto.Unmarshal(data, &info); err != nil {
			t.Fatal(err)
		}
		if (info.ModTime == nil) != want.IsZero() {
			t.Errorf("%v: absent is %v", want, info.ModTime == nil)
		}
		if got := wire.ToTime(info.ModTime); !got.Equal(want) || got.IsZero() != want.IsZero() {
			t.Errorf("%v crosses as %v", want, got)
		}
	}
	// 1970 is a time; absent is none; nonsense does not panic.
	if wire.ToTime(&berthv1.Time{}).Unix() != 0 || !wire.ToTime(nil).IsZero() {
		t.Error("1970 and nothing are confused")
	}
	for _, s := range []int64{math.MinInt64, math.MaxInt64} {
		for _, n := range []int32{math.MinInt32, math.MaxInt32} {
			_ = wire.FromTime(wire.ToTime(&berthv1.Time{Seconds: s, Nanos: n}))
		}
	}
}

func TestFileInfoRoundTrip(t *testing.T) {
	for _, want := range []workspace.FileInfo{
		{},
		{Name: "a\xff\n", Size: 1 << 62, Mode: 0o640, ModTime: time.Unix(-5, 6)},
		{Name: "d", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Name: "l", Mode: fs.ModeSymlink | 0o777, Link: true, Target: "../\xff"},
		{Name: "l", Mode: fs.ModeDir | 0o755, Link: true, Target: "d"},
	} {
		if got := wire.ToFileInfo(wire.FromFileInfo(want)); got != want {
			t.Errorf("%+v crosses as %+v", want, got)
		}
	}
	if got := wire.ToFileInfo(nil); got != (workspace.FileInfo{}) {
		t.Errorf("nothing is %+v", got)
	}
}

func TestEnvRoundTrip(t *testing.T) {
	want := map[string]string{"B": "2", "A": "", "\xff": "v\xff\n=", "": "odd"}
	vars := wire.FromEnv(want)
	if names := slices.Collect(func(yield func(string) bool) {
		for _, v := range vars {
			if !yield(string(v.GetName())) {
				return
			}
		}
	}); !slices.Equal(names, []string{"", "A", "B", "\xff"}) {
		t.Errorf("in the order %q", names)
	}
	if got := wire.ToEnv(vars); !reflect.DeepEqual(got, want) {
		t.Errorf("%q crosses as %q", want, got)
	}
	later := append(vars, &berthv1.EnvVar{Name: []byte("A"), Value: []byte("later")}, nil)
	if got := wire.ToEnv(later)["A"]; got != "later" {
		t.Errorf("A is %q: later ones win", got)
	}
	if got := wire.ToEnv(nil); got == nil || len(got) != 0 {
		t.Errorf("no variables are %v", got)
	}
	if got := wire.FromEnv(nil); len(got) != 0 {
		t.Errorf("no variables are %v", got)
	}
}

func TestBytesListRoundTrip(t *testing.T) {
	for _, want := range [][]string{nil, {""}, {"a", "", "\xff\x00", odd}} {
		if got := wire.ToBytesList(wire.FromBytesList(want)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q crosses as %q", want, got)
		}
	}
	if got := wire.FromBytesList([]string{}); got != nil {
		t.Errorf("none are %v", got)
	}
}

func TestFeaturesRoundTrip(t *testing.T) {
	names := wire.FromFeatures(workspace.Features{workspace.FeatureShell: true, workspace.FeatureChmod: true, workspace.FeatureFiles: false, "zzz": true, "aaa": true})
	if want := []string{"aaa", "chmod", "shell", "zzz"}; !slices.Equal(names, want) {
		t.Errorf("features %q, want %q", names, want)
	}
	got := wire.ToFeatures(append(names, "chmod", "of a newer version"))
	want := workspace.Features{"aaa": true, "chmod": true, "shell": true, "zzz": true, "of a newer version": true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("features %v, want %v", got, want)
	}
	if got := wire.ToFeatures(nil); got == nil || len(got) != 0 {
		t.Errorf("no features are %v", got)
	}
}
