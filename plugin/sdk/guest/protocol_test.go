package guest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/plugin/sdk/guest"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/wire/guestv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// released are the guest protocols of all versions that were ever released, which
// containers out there still speak. A line here is never removed.
var released = []struct {
	protocol int32
	since    string
}{
	{1, "the first release"},
}

func connectTo(t testing.TB, f *fake, version string) (*guest.Client, error) {
	t.Helper()
	conn, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return guest.Connect(t.Context(), conn, version)
}

func TestB6_EveryReleasedGuestIsSpokenTo(t *testing.T) {
	for _, r := range released {
		f := startFake(t, func(f *fake) {
			f.hello = func(h *guestv1.HelloResponse) { h.ProtocolMin, h.ProtocolMax = r.protocol, r.protocol }
		})
		c, err := connectTo(t, f, "v9")
		if err != nil {
			t.Errorf("protocol %d, of %s: %v", r.protocol, r.since, err)
			continue
		}
		if c.Hello().Protocol != int(r.protocol) {
			t.Errorf("protocol %d: %d is used", r.protocol, c.Hello().Protocol)
		}
		if asked := <-f.asked; asked.GetClientVersion() != "v9" || asked.GetProtocolMin() > r.protocol || asked.GetProtocolMax() < r.protocol {
			t.Errorf("asked %v", asked)
		}
		_ = c.Close()
	}
}

// TestB6_AGuestThatSpeaksMore is of a newer version that still speaks ours, and
// tells and announces what we do not know.
func TestB6_AGuestThatSpeaksMore(t *testing.T) {
	f := startFake(t, func(f *fake) {
		f.hello = func(h *guestv1.HelloResponse) {
			h.ProtocolMax = 7
			h.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 3, 'n', 'e', 'w'}) // field 1023
		}
		f.opened = func(o *berthv1.Opened) { o.Features = append(o.Features, "time_travel") }
	})
	c, err := connectTo(t, f, "v9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Hello().Protocol != 1 || !slices.Contains(c.Features(), workspace.Feature("time_travel")) {
		t.Errorf("%+v %v", c.Hello(), c.Features())
	}
}

func TestB6_NoSharedProtocolNamesBothVersions(t *testing.T) {
	f := startFake(t, func(f *fake) {
		f.hello = func(h *guestv1.HelloResponse) {
			// All else may mean anything.
			*h = guestv1.HelloResponse{ProtocolMin: 3, ProtocolMax: 4, Version: "v5.0.0\x1b[31m" + strings.Repeat("x", 1000)}
		}
	})
	_, err := connectTo(t, f, "v1.2.3")
	var protocol *guest.ProtocolError
	if !errors.As(err, &protocol) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"berth-guest v5.0.0?[31m", "guest protocol 3 to 4", "this plugin, v1.2.3, speaks 1", "use a plugin of the guest's version or later"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if len(err.Error()) > 1000 {
		t.Errorf("it has %d bytes", len(err.Error()))
	}
	older := &guest.ProtocolError{GuestVersion: "v0", GuestMin: 1, GuestMax: 1, ClientVersion: "v9", ClientMin: 2, ClientMax: 3}
	if want := "make the workspace again"; !strings.Contains(older.Error(), want) {
		t.Errorf("%q lacks %q", older, want)
	}
	// The provider's Explain has no say in it: the workspace is there.
	_, err = guest.Open(t.Context(), guest.Options{Dial: f.dial, Version: "v1.2.3"})
	if !errors.As(err, &protocol) || errors.Is(err, workspace.ErrTransient) || errors.Is(err, workspace.ErrUnavailable) {
		t.Errorf("open: %v", err)
	}
}

// TestAGuestIsNotBelieved has all that a guest could say wrongly.
func TestAGuestIsNotBelieved(t *testing.T) {
	hello := func(change func(*guestv1.HelloResponse)) func(*fake) {
		return func(f *fake) { f.hello = change }
	}
	opened := func(change func(*berthv1.Opened)) func(*fake) {
		return func(f *fake) { f.opened = change }
	}
	for name, test := range map[string]struct {
		change func(*fake)
		want   string
	}{
		"no protocol":        {hello(func(h *guestv1.HelloResponse) { h.ProtocolMin, h.ProtocolMax = 0, 0 }), "protocols 0 to 0"},
		"a negative one":     {hello(func(h *guestv1.HelloResponse) { h.ProtocolMin = -1 }), "protocols -1 to 1"},
		"a reversed range":   {hello(func(h *guestv1.HelloResponse) { h.ProtocolMin = 2 }), "protocols 2 to 1"},
		"no digest":          {hello(func(h *guestv1.HelloResponse) { h.Digest = nil }), "digest has 0 bytes"},
		"a long digest":      {hello(func(h *guestv1.HelloResponse) { h.Digest = make([]byte, 33) }), "digest has 33 bytes"},
		"no boot id":         {hello(func(h *guestv1.HelloResponse) { h.BootId = nil }), "boot id has 0 bytes"},
		"a relative dir":     {hello(func(h *guestv1.HelloResponse) { h.WorkingDir = []byte("work") }), "working directory"},
		"a dir not resolved": {hello(func(h *guestv1.HelloResponse) { h.WorkingDir = []byte("/a/../b") }), "working directory"},
		"a dir with NUL":     {hello(func(h *guestv1.HelloResponse) { h.WorkingDir = []byte("/a\x00b") }), "working directory"},
		"a long dir":         {hello(func(h *guestv1.HelloResponse) { h.WorkingDir = []byte("/" + strings.Repeat("x", 4096)) }), "working directory"},
		"no workspace":       {hello(func(h *guestv1.HelloResponse) { h.WorkspaceId = "" }), "the guest's workspace"},
		"a workspace of any": {hello(func(h *guestv1.HelloResponse) { h.WorkspaceId = "a/b" }), "the guest's workspace"},
		"a large hello":      {hello(func(h *guestv1.HelloResponse) { h.Version = strings.Repeat("x", 1<<20) }), "larger than max"},
		"another workspace":  {opened(func(o *berthv1.Opened) { o.Id = "other" }), `opened workspace "other"`},
		"another dir":        {opened(func(o *berthv1.Opened) { o.WorkingDir = []byte("/other") }), `is in "/other"`},
		"many features":      {opened(func(o *berthv1.Opened) { o.Features = make([]string, 257) }), "257 features"},
		"an empty feature":   {opened(func(o *berthv1.Opened) { o.Features = []string{""} }), "the feature"},
		"an odd feature":     {opened(func(o *berthv1.Opened) { o.Features = []string{"a\nb"} }), "the feature"},
		"a long registry":    {opened(func(o *berthv1.Opened) { o.RunRegistry = make([]byte, 65) }), "registry of runs has 65 bytes"},
		"a long feature":     {opened(func(o *berthv1.Opened) { o.Features = []string{strings.Repeat("x", 65)} }), "the feature"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := connectTo(t, startFake(t, test.change), "v9")
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, workspace.ErrInvalid) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("its text has %d bytes", len(err.Error()))
			}
		})
	}
}
