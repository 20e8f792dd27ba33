package shellfs

import (
	"context"
	"io"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// flood is a shell that somebody has replaced: it says one byte over and over.
type flood struct {
	says  byte
	given int64
}

func (f *flood) Run(context.Context, []string) (Process, error) { return f, nil }
func (f *flood) Write(p []byte) (int, error)                    { return len(p), nil }
func (f *flood) Wait() (int, []byte, error)                     { return 0, nil, nil }
func (f *flood) Close() error                                   { return nil }

func (f *flood) Read(p []byte) (int, error) {
	if f.given > 2*maxAnswer { // more than may be asked for: spare the machine
		return 0, io.EOF
	}
	for i := range p {
		p[i] = f.says
	}
	f.given += int64(len(p))
	return len(p), nil
}

// TestAFloodIsNotRead shows that what a workspace says takes a bounded memory.
func TestAFloodIsNotRead(t *testing.T) {
	for name, test := range map[string]struct {
		says byte
		most int64
		call func(context.Context, *FS) error
	}{
		"a listing": {'x', maxAnswer, func(ctx context.Context, f *FS) error { _, err := f.ReadDir(ctx, "d"); return err }},
		"a file's first line": {'x', maxHeader, func(ctx context.Context, f *FS) error {
			_, err := f.Open(ctx, "f", workspace.ReadOptions{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			shell := &flood{says: test.says}
			if err := test.call(t.Context(), &FS{runner: shell, dir: "/w"}); err == nil {
				t.Error("it was taken for an answer")
			}
			if shell.given > 2*test.most {
				t.Errorf("%d bytes were read, want about %d at most", shell.given, test.most)
			}
		})
	}
}
