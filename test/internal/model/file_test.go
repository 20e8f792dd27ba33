package model_test

import (
	"testing"

	"github.com/berth-dev/berth/test/internal/model"
)

func TestFile(t *testing.T) {
	var f model.File
	if !f.MayBeAbsent() || f.Is(nil) {
		t.Error("a file is there that nobody wrote")
	}
	f.MayHaveWritten([]byte("a"))
	if !f.MayBeAbsent() || f.Is([]byte("b")) {
		t.Error("a write of unknown outcome is taken for another one")
	}
	f.Wrote([]byte("b"))
	f.MayHaveWritten([]byte("c"))
	if f.MayBeAbsent() || f.Is([]byte("a")) || f.Contents() != 2 {
		t.Error("an acknowledged write does not count")
	}
	if !f.Is([]byte("c")) || f.Is([]byte("b")) {
		t.Error("what was read once is not what it holds")
	}
}
