package digest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/shared/digest"
)

const (
	ofA = "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
	ofB = "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
)

func TestMemoryReadsWhatHasChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	day := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(text string, modified time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
	var m digest.Memory
	of := func() string {
		t.Helper()
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		sum, err := m.Of(file)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	put("a", day)
	if got := of(); got != ofA {
		t.Errorf("got %s", got)
	}
	// Nothing tells that this is another text: so it is not read.
	put("b", day)
	if got := of(); got != ofA {
		t.Errorf("it was read again: %s", got)
	}
	put("b", day.Add(time.Second))
	if got := of(); got != ofB {
		t.Errorf("it was not read again: %s", got)
	}
	// Another file that is moved into its place, of the same size and time.
	other := path + ".new"
	if err := os.WriteFile(other, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(other, day, day.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if got := of(); got != ofA {
		t.Errorf("another file was not read: %s", got)
	}
}

func TestOf(t *testing.T) {
	if got, err := digest.Of(strings.NewReader("a")); err != nil || got != ofA {
		t.Errorf("%s, %v", got, err)
	}
}
