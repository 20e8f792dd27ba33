package guest_test

import (
	"testing"
	"time"
)

// patience is how long a test waits for what takes milliseconds, on a machine
// that does much else.
const patience = 60 * time.Second

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
