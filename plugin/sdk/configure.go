package sdk

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/plugin/sdk/internal/relay"
	"github.com/berth-dev/berth/shared/wire"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// Describe tells what the plugin is.
func (s *server) Describe(context.Context, *berthv1.DescribeRequest) (*berthv1.DescribeResponse, error) {
	schema, err := s.def.schema()
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", s.def.name, err)
	}
	return &berthv1.DescribeResponse{
		Name:         utf8Text(s.def.name),
		Version:      utf8Text(s.def.version),
		Features:     wire.FromFeatures(s.typeFeatures()),
		ConfigSchema: schema.text,
		Environment:  s.def.environment,
		Companions:   s.def.companions,
	}, nil
}

// Configure makes the provider, once.
func (s *server) Configure(ctx context.Context, req *berthv1.ConfigureRequest) (*berthv1.ConfigureResponse, error) {
	if err := workspace.ValidateName(req.GetProvider()); err != nil {
		return nil, fmt.Errorf("provider's name: %w", err)
	}
	schema, err := s.def.schema()
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", s.def.name, err)
	}
	s.mu.Lock()
	taken := s.configures || s.state != nil
	s.configures = true
	s.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("provider %s: configured already: %w", req.GetProvider(), workspace.ErrInvalid)
	}
	state, answer, err := s.configure(ctx, schema, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configures = false // a try that failed may be made again
	if err != nil {
		return nil, err
	}
	s.state = state
	return answer, nil
}

func (s *server) configure(ctx context.Context, schema *configSchema, req *berthv1.ConfigureRequest) (state *configured, answer *berthv1.ConfigureResponse, err error) {
	// First of all: from here on, any text may quote them.
	s.redactor.set(schema.secrets(req.GetConfig()))
	if err := s.setLogLevel(req.GetLogLevel()); err != nil {
		return nil, nil, err
	}
	if s.def.setEnvironment != nil {
		if err := s.def.setEnvironment(wire.ToEnv(req.GetEnvironment())); err != nil {
			return nil, nil, err
		}
	}
	logger := s.logger.With("provider", req.GetProvider())
	env := Env{Provider: req.GetProvider(), DataDir: string(req.GetDataDir()), Logger: logger}
	err = s.safely("New", func() error {
		provider, vars, err := s.def.newProvider(ctx, schema, req.GetConfig(), env)
		if err != nil {
			return err
		}
		state = &configured{provider: provider, name: req.GetProvider(), env: vars, logger: logger}
		answer = describeProvider(state)
		return nil
	})
	return state, answer, err
}

func describeProvider(state *configured) *berthv1.ConfigureResponse {
	features := workspace.Features{}
	if announcer, ok := state.provider.(Announcer); ok {
		for _, f := range announcer.Announce() {
			features[f] = true
		}
	}
	if _, ok := state.provider.(Lister); ok {
		features[workspace.FeatureList] = true
	}
	if _, ok := state.provider.(Sweeper); ok {
		features[workspace.FeatureSweep] = true
	}
	if _, ok := state.provider.(Stopper); ok {
		features[workspace.FeatureStop] = true
	}
	if _, ok := state.provider.(StoredReader); ok {
		features[workspace.FeatureStored] = true
	}
	state.labels = features.Has(workspace.FeatureLabels)
	answer := &berthv1.ConfigureResponse{Features: wire.FromFeatures(features)}
	if e, ok := state.provider.(Ephemeral); ok {
		answer.Ephemeral = e.Ephemeral()
	}
	if d, ok := state.provider.(Deviator); ok {
		for _, deviation := range d.Deviations() {
			answer.Deviations = append(answer.Deviations, &berthv1.Deviation{
				Rule: utf8Text(deviation.Rule), Reason: utf8Text(deviation.Reason),
			})
		}
	}
	return answer
}

// typeFeatures are those that workspaces of this plugin may have.
func (s *server) typeFeatures() workspace.Features {
	if s.def.workspace == nil {
		return workspace.Features{}
	}
	features := methodFeatures(s.def.workspace)
	// A typed nil may not be able to announce anything; then a workspace does.
	func() {
		defer func() { _ = recover() }()
		announced(s.def.workspace, features)
	}()
	s.durable(s.def.workspace, features)
	return features
}

// workspaceFeatures are those of one workspace.
func (s *server) workspaceFeatures(ws Workspace) workspace.Features {
	features := methodFeatures(ws)
	announced(ws, features)
	withheld(ws, features)
	s.durable(ws, features)
	return features
}

// durable adds that runs can be attached, if this plugin keeps them.
func (s *server) durable(ws Workspace, features workspace.Features) {
	if _, relayed := ws.(relay.Target); !relayed && s.def.durableRuns && features.Has(workspace.FeatureCommands) {
		features[workspace.FeatureAttachRun] = true
	}
}

// methodFeatures are those that ws has by its methods. One whose calls are relayed
// announces all of its own.
func methodFeatures(ws Workspace) workspace.Features {
	features := workspace.Features{}
	if _, relayed := ws.(relay.Target); relayed {
		return features
	}
	add := func(f workspace.Feature, has bool) {
		if has {
			features[f] = true
		}
	}
	_, commands := ws.(Commander)
	_, files := ws.(Filesystem)
	_, renames := ws.(Renamer)
	_, links := ws.(Linker)
	_, chmods := ws.(Chmoder)
	_, chtimes := ws.(Chtimer)
	add(workspace.FeatureCommands, commands)
	add(workspace.FeatureFiles, files)
	add(workspace.FeatureRename, files && renames)
	add(workspace.FeatureSymlink, files && links)
	add(workspace.FeatureChmod, files && chmods)
	add(workspace.FeatureChtimes, files && chtimes)
	return features
}

// announced adds what ws announces. Whether runs can be attached is the SDK's to
// say, unless calls on ws are relayed.
func announced(ws Workspace, features workspace.Features) {
	announcer, ok := ws.(Announcer)
	if !ok {
		return
	}
	_, relayed := ws.(relay.Target)
	for _, f := range announcer.Announce() {
		switch {
		case relayed:
			features[f] = relayable.Has(f)
		case f != workspace.FeatureAttachRun:
			features[f] = true
		}
	}
}
