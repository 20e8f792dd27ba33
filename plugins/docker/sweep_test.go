package docker

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/volume"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/guestvolume"
	"github.com/berth-dev/berth/shared/workspace"
)

func TestSweep_TakesWhatIsLeftBehindAlone(t *testing.T) {
	now := time.Now()
	managed := map[string]string{workspace.LabelManaged: "true"}
	with := func(key, value string) map[string]string {
		return map[string]string{workspace.LabelManaged: "true", key: value}
	}
	s := sweeping{provider: &provider{name: "mine"}, unused: sweepGrace, kept: "berth-guest-now"}
	for name, test := range map[string]struct {
		labels map[string]string
		volume string
		age    time.Duration
		want   bool
	}{
		"a workspace's":              {with(workspace.LabelProvider, "mine"), "v", time.Hour, true},
		"one that was made just now": {with(workspace.LabelProvider, "mine"), "v", time.Second, false},
		"another provider's":         {with(workspace.LabelProvider, "theirs"), "v", time.Hour, false},
		"an earlier guest":           {with(guestvolume.LabelGuest, "00"), "berth-guest-old", time.Hour, true},
		"the current guest":          {with(guestvolume.LabelGuest, "00"), "berth-guest-now", time.Hour, false},
		"nobody's that we know":      {managed, "v", time.Hour, false},
		"not ours":                   {map[string]string{workspace.LabelProvider: "mine"}, "v", time.Hour, false},
	} {
		v := &volume.Volume{Name: test.volume, Labels: test.labels, CreatedAt: now.Add(-test.age).Format(time.RFC3339)}
		if got := s.leftBehind(v, now); got != test.want {
			t.Errorf("%s: swept %v, want %v", name, got, test.want)
		}
	}
	if s.leftBehind(&volume.Volume{Labels: with(workspace.LabelProvider, "mine"), CreatedAt: "long ago"}, now) {
		t.Error("a volume of unknown age is swept")
	}
}

// TestSweep_SaysOnceThatThereIsNoEngine: one that does not answer takes its time with
// each question.
func TestSweep_SaysOnceThatThereIsNoEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none.sock"))
	made, err := Plugin("test").New(t.Context(), Config{}, sdk.Env{Provider: "mine", DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	p := made.(*provider)
	t.Cleanup(func() { _ = p.Close() })
	swept, err := p.Sweep(t.Context(), workspace.SweepOptions{})
	if !errors.Is(err, workspace.ErrTransient) || len(swept) > 0 || strings.Count(err.Error(), "none.sock") != 1 {
		t.Errorf("swept %v, %v", swept, err)
	}
}
