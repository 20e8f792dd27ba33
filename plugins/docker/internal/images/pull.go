package images

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

const (
	// pullSilence is how long an engine may say nothing in a pull. It reports each
	// piece of a layer as it comes, and is silent only while it waits for a
	// registry, for which it has limits of its own, or stores a large layer on a
	// slow disk.
	pullSilence = 5 * time.Minute
	// rateLimitPause is how long a pull waits that the registry has put off,
	// before its only other try. The engine does not tell how long the registry
	// asked for; limits on requests per second pass within a few.
	rateLimitPause = 5 * time.Second
	// messageLimit bounds one message of a pull. The engine's are less than 1 KiB.
	messageLimit = 1 << 20
)

// pull pulls an image, with one more try if the registry is too busy.
func (s *Images) pull(ctx context.Context, named reference.Named, report func(sdk.Progress)) error {
	name := reference.FamiliarString(named)
	err := s.pullOnce(ctx, named, report)
	if errors.Is(err, errRateLimited) {
		report(sdk.Progress{Text: fmt.Sprintf("pulling %s: the registry is too busy, again in %v", name, s.rateLimitPause)})
		select {
		case <-time.After(s.rateLimitPause):
			err = s.pullOnce(ctx, named, report)
		case <-ctx.Done():
			err = fmt.Errorf("pulling image %s: %w", name, context.Cause(ctx))
		}
	}
	return err
}

func (s *Images) pullOnce(ctx context.Context, named reference.Named, report func(sdk.Progress)) error {
	name := reference.FamiliarString(named)
	report(sdk.Progress{Text: "pulling " + name})
	found, err := credentialsFor(ctx, reference.Domain(named))
	if err != nil {
		return fmt.Errorf("pulling image %s: %w", name, err)
	}
	return s.engine.Stream(ctx, s.silence, "pulling image "+name, func(ctx context.Context, c *client.Client, alive func()) error {
		body, err := c.ImagePull(ctx, named.String(), image.PullOptions{RegistryAuth: found.header})
		if err != nil {
			return explain(ctx, named, found, err)
		}
		defer body.Close()
		if err := follow(body, name, alive, report); err != nil {
			return explain(ctx, named, found, err)
		}
		return nil
	})
}

// message is what the engine says in a pull. An error is one too: the status of
// the answer was 200 long before.
type message struct {
	ID             string `json:"id"`
	Status         string `json:"status"`
	ProgressDetail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	Error       string `json:"error"`
	ErrorDetail *struct {
		Message string `json:"message"`
	} `json:"errorDetail"`
}

func (m message) failure() error {
	switch {
	case m.ErrorDetail != nil && m.ErrorDetail.Message != "":
		return &pullError{m.ErrorDetail.Message}
	case m.Error != "":
		return &pullError{m.Error}
	case m.ErrorDetail != nil:
		return &pullError{"the engine tells no reason"}
	}
	return nil
}

// pullError is what the engine says went wrong in the middle of a pull.
type pullError struct{ text string }

func (e *pullError) Error() string { return e.text }

// follow reads what the engine says until it is done.
func follow(body io.Reader, name string, alive func(), report func(sdk.Progress)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, messageLimit)
	progress := newProgress(name)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		alive()
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("the engine says something that is no message of a pull: %s: %w", err.Error(), workspace.ErrTransient)
		}
		if err := m.failure(); err != nil {
			return err
		}
		if p, worth := progress.add(m, time.Now()); worth {
			report(p)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("the engine says something longer than %d bytes in a pull: %w", messageLimit, workspace.ErrTransient)
	}
	return lines.Err()
}
