package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/plugins/docker/internal/runtimes"
)

// prepareImage has the engine get the image, pulled or built if need be, and
// takes from a runtime what the configuration leaves open.
func (p *provider) prepareImage(ctx context.Context, pl *plan) (err error) {
	report := func(progress sdk.Progress) { sdk.Report(ctx, progress) }
	if !pl.config.hasRuntime() {
		pl.record.Image = pl.imageRef
		pl.image, err = p.images.Ensure(ctx, pl.imageRef, report)
		return err
	}
	runtime, err := pl.config.Runtime.Parse()
	if err != nil {
		return err
	}
	made, err := runtime.Ensure(ctx, p.engine, p.images, report)
	if err != nil {
		return err
	}
	pl.imageRef, pl.image = made.Ref, made.Found
	pl.record.Image, pl.record.Runtime = made.Ref, runtime.Name
	pl.workDir = cmp.Or(pl.config.WorkDir, made.WorkDir, DefaultWorkDir)
	if pl.user == "" && runtime.RunAsUID != 0 {
		pl.user = strconv.Itoa(runtime.RunAsUID)
	}
	return nil
}

// runtimeEnv is what a workspace's runtime has for every command. It is nowhere in
// the container, so it comes from the configuration, or is a built-in's.
func (p *provider) runtimeEnv(r record) map[string]string {
	if r.Runtime == "" {
		return nil
	}
	if p.config.hasRuntime() {
		if runtime, err := p.config.Runtime.Parse(); err == nil && runtime.Name == r.Runtime {
			return runtime.Env
		}
	}
	name, err := json.Marshal(r.Runtime)
	if err != nil {
		return nil
	}
	runtime, err := runtimes.Parse(name)
	if err != nil {
		return nil // described by another configuration than today's
	}
	return runtime.Env
}

// checkOverride refuses what could not be kept: a runtime's variables are in the
// provider's configuration alone, while the host keeps those of the key env.
func checkOverride(base, changed Config) error {
	if !changed.hasRuntime() || string(base.Runtime) == string(changed.Runtime) {
		return nil
	}
	runtime, err := changed.Runtime.Parse()
	if err == nil && len(runtime.Env) > 0 {
		return invalidKey("runtime.env_vars", "cannot be given for one workspace: set the key env, which its handle keeps")
	}
	return err
}

// oneImage lets the image or the runtime of one workspace stand in for whichever
// of them the provider has.
func oneImage(base, changed Config) Config {
	image, runtime := changed.Image != base.Image, string(changed.Runtime) != string(base.Runtime)
	switch {
	case image && !runtime:
		changed.Runtime = nil
	case runtime && !image && changed.hasRuntime():
		changed.Image = ""
	}
	return changed
}
