package wire_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/wire/guestv1"
)

var update = flag.Bool("update", false, "add what is new in the protocols to their files in testdata")

// The protocols grow by addition only: whatever was in one once keeps its number,
// its type and its name, since binaries that people have built speak it.
func TestProtocolOnlyGrows(t *testing.T) {
	for _, protocol := range []protoreflect.FileDescriptor{berthv1.File_berthv1_berth_proto, guestv1.File_guestv1_guest_proto} {
		t.Run(string(protocol.Package()), func(t *testing.T) { onlyGrows(t, protocol) })
	}
}

func onlyGrows(t *testing.T, protocol protoreflect.FileDescriptor) {
	file := "testdata/" + string(protocol.Package()) + ".txt"
	now := protocolLines(protocol)
	data, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	old := slices.Collect(strings.Lines(string(data)))
	for i := range old {
		old[i] = strings.TrimSuffix(old[i], "\n")
	}
	for _, line := range old {
		if !slices.Contains(now, line) {
			t.Errorf("gone from the protocol, or changed: %s", line)
		}
	}
	var added []string
	for _, line := range now {
		if !slices.Contains(old, line) {
			added = append(added, line)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(append(old, added...), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if len(added) > 0 {
		t.Errorf("new in the protocol: run this test with -update to freeze it:\n%s", strings.Join(added, "\n"))
	}
}

// protocolLines says in a line each what matters of a call or field to a peer.
func protocolLines(file protoreflect.FileDescriptor) []string {
	var lines []string
	for i := range file.Services().Len() {
		methods := file.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			lines = append(lines, fmt.Sprintf("call %s %s%s %s%s", m.FullName(), stream(m.IsStreamingClient()), m.Input().Name(), stream(m.IsStreamingServer()), m.Output().Name()))
		}
	}
	for i := range file.Messages().Len() {
		fields := file.Messages().Get(i).Fields()
		for j := range fields.Len() {
			f := fields.Get(j)
			kind := f.Kind().String()
			if f.IsMap() {
				kind = fmt.Sprintf("map<%v,%v>", f.MapKey().Kind(), f.MapValue().Kind())
			} else if f.Message() != nil {
				kind = string(f.Message().Name())
			}
			presence := f.Cardinality().String()
			if f.HasPresence() {
				presence = "present"
			}
			if oneof := f.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
				presence = "oneof:" + string(oneof.Name())
			}
			lines = append(lines, fmt.Sprintf("field %s %d %s %s", f.FullName(), f.Number(), presence, kind))
		}
	}
	return lines
}

func stream(is bool) string {
	if is {
		return "stream:"
	}
	return ""
}
