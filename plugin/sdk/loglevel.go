package sdk

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// SetLogLevel has this process log from a level on.
func (s *server) SetLogLevel(_ context.Context, req *berthv1.SetLogLevelRequest) (*berthv1.SetLogLevelResponse, error) {
	if s.def.setLogLevel == nil {
		return nil, unsupported("the log of a plugin that is served in its host's process is the host's")
	}
	if err := s.setLogLevel(req.GetLevel()); err != nil {
		return nil, err
	}
	return &berthv1.SetLogLevelResponse{}, nil
}

// setLogLevel takes the host's word for a level; none is no change.
func (s *server) setLogLevel(name string) error {
	if name == "" || s.def.setLogLevel == nil {
		return nil
	}
	level := hclog.LevelFromString(name)
	if level == hclog.NoLevel {
		return fmt.Errorf("log level %q: there are trace, debug, info, warn, error and off: %w", name, workspace.ErrInvalid)
	}
	s.def.setLogLevel(level)
	return nil
}
