package sdk

import (
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// List tells what the provider made, filtered whether it did that itself or not.
func (s *server) List(req *berthv1.ListRequest, stream grpc.ServerStreamingServer[berthv1.ListResponse]) error {
	state, err := s.configured()
	if err != nil {
		return err
	}
	lister, ok := state.provider.(Lister)
	if !ok {
		return unsupported("list: provider %s has none", state.name)
	}
	opts := workspace.ListOptions{Labels: req.GetLabels(), OlderThan: time.Duration(req.GetOlderThanNs())}
	if opts.OlderThan < 0 {
		return fmt.Errorf("list: age %v is negative: %w", opts.OlderThan, workspace.ErrInvalid)
	}
	for info, err := range lister.List(stream.Context(), opts) {
		if err != nil {
			return err
		}
		if !matches(info, opts, time.Now()) {
			continue
		}
		id, err := workspace.EncodeID(info.ID)
		if err != nil {
			return fmt.Errorf("list: provider %s: %w", state.name, err)
		}
		message := &berthv1.ListResponse{
			Id: id, Name: utf8Text(info.Name), Labels: utf8Map(info.Labels), Created: wire.FromTime(info.Created),
			State: utf8Text(info.State), Details: utf8Map(info.Details),
		}
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	return stream.Context().Err()
}

func matches(info Info, opts workspace.ListOptions, now time.Time) bool {
	for key, want := range opts.Labels {
		if have, ok := info.Labels[key]; !ok || have != want {
			return false
		}
	}
	if opts.OlderThan > 0 {
		return !info.Created.IsZero() && now.Sub(info.Created) >= opts.OlderThan
	}
	return true
}

func utf8Map(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for key, value := range maps.All(m) {
		out[utf8Text(key)] = utf8Text(value)
	}
	return out
}
