package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// logLines is how much of the log of a container that died is told.
	logLines = 10
	// maxLog bounds it in bytes.
	maxLog = 8 << 10
	// logTimeout is for reading it: an error should not wait for its illustration.
	logTimeout = 5 * time.Second
)

// neverStarted says that a container was made and nothing else.
func neverStarted(c container.InspectResponse) bool {
	started, err := time.Parse(time.RFC3339Nano, c.State.StartedAt)
	return c.State.Status == container.StateCreated && (err != nil || started.IsZero())
}

// statusStopped is what Podman calls a container that has ended until it has tidied
// up after it.
const statusStopped container.ContainerState = "stopped"

// hasEnded says that a container was started and has ended.
func hasEnded(c container.InspectResponse) bool {
	return c.State.Status == container.StateExited || c.State.Status == statusStopped
}

// explain says what it means that a container does not answer: an error that
// wraps [workspace.ErrUnavailable] with the reason if it has gone or stands still,
// else [workspace.ErrTransient].
func (p *provider) explain(ctx context.Context, r *room, cause error) error {
	gone, err := p.settled(ctx, r)
	if gone != nil {
		return gone
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	if errors.Is(cause, workspace.ErrTransient) || errors.Is(cause, workspace.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("container %s is running, but cannot be reached: %w: %w", r.name, cause, workspace.ErrTransient)
}

const (
	// settleTime is how long the engine may say that a container runs of which a
	// stream has just ended: the streams of a container that ends are closed before
	// its end is noted, on a busy machine some 100 ms before.
	settleTime = 1500 * time.Millisecond
	settlePoll = 50 * time.Millisecond
)

// settle inspects a container in which something has failed until what the engine
// tells is enough, or it has had the time to tell it.
func (p *provider) settle(ctx context.Context, id string, enough func(container.InspectResponse, error) bool) error {
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for end := time.Now().Add(settleTime); ; {
		if c, err := p.inspect(ctx, id); enough(c, err) || err != nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settled says why a room cannot be used any more, if it cannot, once something in
// it has failed. The other error is that the engine did not tell.
func (p *provider) settled(ctx context.Context, r *room) (gone, err error) {
	err = p.settle(ctx, r.container, func(c container.InspectResponse, err error) bool {
		gone = p.stateOf(ctx, r, c, err)
		return gone != nil
	})
	if gone != nil {
		return gone, nil
	}
	return nil, err
}

// stateOf says why a room cannot be used any more, by what an inspection of its
// container has given; nil if it can be, or if that is not known.
func (p *provider) stateOf(ctx context.Context, r *room, c container.InspectResponse, err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return fmt.Errorf("container %s was removed: %w", r.name, workspace.ErrUnavailable)
	case err != nil:
		return nil //nolint:nilerr // then it is not known
	}
	if err := p.unusable(ctx, c); err != nil {
		return err
	}
	if incarnationOf(c, r.record) != r.incarnation {
		return restarted(c)
	}
	return nil
}

func restarted(c container.InspectResponse) error {
	return fmt.Errorf("container %s was started again, and the files of its work directory, which lies in memory, are lost: %w", nameOf(c), workspace.ErrUnavailable)
}

// unusable says why nothing can be done in a container, or nil of one that runs.
func (p *provider) unusable(ctx context.Context, c container.InspectResponse) error {
	s := c.State
	gone := func(format string, args ...any) error {
		return fmt.Errorf("container %s %s: %w", nameOf(c), fmt.Sprintf(format, args...), workspace.ErrUnavailable)
	}
	switch {
	case s.Dead:
		return gone("is dead: it is being removed, or the engine could not: then docker rm -f %s", nameOf(c))
	case s.Status == container.StateRemoving:
		return gone("is being removed")
	case s.Restarting:
		return gone("is restarting: it ended with exit code %d%s", s.ExitCode, p.lastLines(ctx, c))
	case s.Paused:
		return gone("is paused: attach again to go on")
	case s.Running:
		return nil
	case s.Status == container.StateCreated:
		return gone("was not started%s", after(s.Error))
	case s.OOMKilled:
		return gone("was killed because it was out of memory (%s)%s", memoryOf(c), p.lastLines(ctx, c))
	}
	return gone("has ended with exit code %d%s%s", s.ExitCode, after(s.Error), p.lastLines(ctx, c))
}

func memoryOf(c container.InspectResponse) string {
	if c.HostConfig == nil || c.HostConfig.Memory == 0 {
		return "the engine's machine had none left"
	}
	return fmt.Sprintf("mem_limit is %d bytes", c.HostConfig.Memory)
}

func after(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// nameOf is a container's name as people know it.
func nameOf(c container.InspectResponse) string { return strings.TrimPrefix(c.Name, "/") }

// lastLines are the last lines that a container has written, or nothing.
func (p *provider) lastLines(ctx context.Context, c container.InspectResponse) string {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	var text bytes.Buffer
	_ = p.engine.Query(ctx, "reading the log of container "+nameOf(c), func(ctx context.Context, api *client.Client) error {
		lines, err := api.ContainerLogs(ctx, c.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(logLines)})
		if err != nil {
			return err
		}
		defer lines.Close()
		both := &limitedBuffer{left: maxLog, to: &text}
		_, err = stdcopy.StdCopy(both, both, lines)
		return err
	}) // what was read of it is told
	lines := strings.FieldsFunc(strings.ToValidUTF8(text.String(), "\uFFFD"), func(r rune) bool { return r == '\n' || r == '\r' })
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == "" })
	if len(lines) == 0 {
		return ""
	}
	return "; its last lines: " + strings.Join(lines, " | ")
}

// limitedBuffer keeps the beginning, and takes the rest.
type limitedBuffer struct {
	left int
	to   *bytes.Buffer
}

func (b *limitedBuffer) Write(text []byte) (int, error) {
	kept := min(len(text), b.left)
	b.left -= kept
	b.to.Write(text[:kept])
	return len(text), nil
}

// refusedKey says which key the engine does not like. That the engine takes it for a
// fault of its own is not kept.
func refusedKey(key string, err error) error {
	return fmt.Errorf("config key %s: the engine refuses it: %s: %w", key, err.Error(), workspace.ErrInvalid)
}

// isRefusedMount reads whether the engine cannot mount a folder of its machine.
func isRefusedMount(text string) bool {
	return strings.Contains(text, "mount source path") || strings.Contains(text, "bind source path does not exist")
}

// refusedMount is for what comes before a start: also reading a container's files
// has the engine mount everything.
func refusedMount(err error) error {
	if err != nil && isRefusedMount(err.Error()) {
		return refusedKey("volumes", err)
	}
	return err
}

// refused marks an error with which the engine refuses a container for what is
// asked of it: no other try will help before that is changed. The engine says so
// in the runtime's words, with a status as if it had failed itself.
func refused(err error) error {
	if err == nil || errdefs.IsConflict(err) {
		return err
	}
	text := err.Error()
	if errdefs.IsNotFound(err) && strings.Contains(text, "network ") || strings.Contains(text, "unable to find network") { // Podman's is an internal error
		return fmt.Errorf("%s: config key network_mode names a network that the engine does not have: %w", text, workspace.ErrInvalid)
	}
	if errdefs.IsNotFound(err) {
		return err
	}
	says := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case says("nknown runtime", "invalid runtime name", "unknown or invalid runtime"):
		return fmt.Errorf("%w: config key oci_runtime names a runtime that the engine does not have: %w", err, workspace.ErrInvalid)
	case says(`exec: "`, "exec format error"):
		return fmt.Errorf("%w: %w", err, errNoProgram)
	case says("nable to find user", "no matching entries in passwd", "unable to find group"):
		return fmt.Errorf("%w: config key user names somebody whom the image does not know: %w", err, workspace.ErrInvalid)
	case says("uids and gids must be in range"):
		return refusedKey("user", err)
	case says("invalid tmpfs option", `error mounting "tmpfs"`):
		return refusedKey("tmpfs", err)
	case says("Range of CPUs", "cpu.cfs_quota_us", "cpu.max"):
		return refusedKey("cpus", err)
	case isRefusedMount(text):
		return refusedKey("volumes", err)
	case says("OCI runtime create failed", "invalid mount config", "not allowed", "Invalid") ||
		errdefs.IsInvalidArgument(err):
		return fmt.Errorf("%w: %w", err, workspace.ErrInvalid)
	}
	return err
}
