package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/shared/workspace"
)

// opening is a workspace that a command line opens, and the telling of its ref.
type opening struct {
	app      *app
	provider string
	ws       workspace.Workspace
	file     *refFile // nil without --ref-file
	told     bool
}

// begin makes a handle of what the flags say. Nothing is made before open.
func (a *app) begin(provider string, flags *openFlags, opts []workspace.Option) (*opening, error) {
	if strings.Contains(provider, "/") {
		return nil, fmt.Errorf("%s is a workspace's ref, and a provider's name is wanted: berth exec runs a command in a workspace that is there: %w", provider, workspace.ErrInvalid)
	}
	h, err := a.openHost()
	if err != nil {
		return nil, err
	}
	o := &opening{app: a, provider: provider}
	if o.ws, err = h.Workspace(provider, append(opts, a.watchOpening()...)...); err != nil {
		return nil, err
	}
	if flags.refFile != "" {
		if o.file, err = a.createRefFile(flags.refFile); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// open makes or finds the workspace.
func (o *opening) open(ctx context.Context) (ref workspace.Ref, dir string, err error) {
	dir, err = o.ws.WorkingDir(ctx)
	o.app.clearStatus()
	var config *host.ConfigError
	if errors.As(err, &config) && config.File == "" {
		err = fmt.Errorf("provider %s: %w", o.provider, err) // it tells of a key alone
	}
	ref, _ = o.ws.Ref()
	return ref, dir, err
}

// tell writes the ref to its file, or else says it on stderr.
func (o *opening) tell(ref workspace.Ref) error {
	o.told = true
	if o.file == nil {
		o.app.say("workspace %s", ref)
		return nil
	}
	return o.file.write(ref)
}

// end tells the ref of a workspace whose making was interrupted: it is made all
// the same, and without its ref nobody could destroy it. The host is closed for
// that, which waits for calls that are under way.
func (o *opening) end() error {
	if o.told {
		return nil
	}
	closeErr := o.app.closeHost()
	if ref, ok := o.ws.Ref(); ok {
		return o.tell(ref)
	}
	if o.file != nil {
		o.file.discard()
	}
	return closeErr
}

// remove destroys the workspace, also when ctx has ended. When the making of it
// failed with failure, and may have been carried out all the same, the handle
// finds it first.
func (o *opening) remove(ctx context.Context, failure error) error {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	ref, ok := o.ws.Ref()
	if !ok {
		var plugin *workspace.PluginError
		if !interrupted && (!errors.As(failure, &plugin) || !plugin.MayHaveExecuted) {
			return nil // it was never made
		}
		if _, err := o.ws.WorkingDir(ctx); err != nil {
			return fmt.Errorf("finding the workspace whose making was interrupted, to destroy it: %w", err)
		}
		ref, _ = o.ws.Ref()
	}
	if err := o.app.host.Destroy(ctx, ref); err != nil {
		return fmt.Errorf("destroying %s, which may be still there: %w", ref, err)
	}
	if !o.told && o.file != nil {
		o.file.discard()
	}
	o.told = true // there is nothing left to tell of
	return nil
}
