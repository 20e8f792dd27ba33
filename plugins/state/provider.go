package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
	"github.com/berth-dev/berth/shared/workspace"
)

// provider is every workspace that one configured provider made in a store.
type provider struct {
	config  Config
	name    string
	store   store
	memory  bool
	sweeper *sweeper
}

var (
	_ sdk.Provider  = (*provider)(nil)
	_ sdk.Lister    = (*provider)(nil)
	_ sdk.Announcer = (*provider)(nil)
	_ sdk.Ephemeral = (*provider)(nil)
	_ sdk.Deviator  = (*provider)(nil)
)

// Create makes a workspace under the request's key, or returns the one that is
// there: the key is unique in the store, whoever races for it.
func (p *provider) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Workspace, error) {
	key := req.Key()
	switch d, err := p.Attach(ctx, key); {
	case err == nil:
		return d, nil
	case !errors.Is(err, workspace.ErrUnavailable):
		return nil, err
	}
	config, err := sdk.Override(p.config, req.Overrides)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	fresh := record{
		key: key, provider: p.name, named: req.Name != "", incarnation: rand.Text(),
		labels: req.Labels, created: now, limits: config.limits(p.memory),
	}
	var r record
	err = p.store.update(ctx, durable, func(t tx) error {
		old, ok, err := t.workspaceByKey(key)
		if err != nil {
			return err
		}
		if ok { // another process made it since
			r = old
			return p.checkOwner(old)
		}
		root := node{parent: noParent, name: key, kind: kindDir, mode: workspace.DefaultDirMode, modTime: now}
		if err := t.insertNode(&root); err != nil {
			return err
		}
		r = fresh
		r.root = root.id
		return t.insertWorkspace(&r)
	})
	if err != nil {
		return nil, fmt.Errorf("create workspace %s: %w", key, err)
	}
	return p.open(r), nil
}

// Attach opens a workspace by its key.
func (p *provider) Attach(ctx context.Context, id string) (sdk.Workspace, error) {
	var r record
	err := p.store.view(ctx, func(t tx) (err error) {
		r, err = p.find(t, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p.open(r), nil
}

// Destroy ends a workspace at once. Its files are reclaimed afterwards.
func (p *provider) Destroy(ctx context.Context, id string) error {
	err := p.store.update(ctx, durable, func(t tx) error {
		r, err := p.find(t, id)
		if errors.Is(err, workspace.ErrUnavailable) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.deleteWorkspace(r.id); err != nil {
			return err
		}
		root, ok, err := t.node(r.root)
		if err != nil || !ok {
			return err
		}
		return discardTree(t, r.id, root)
	})
	if err != nil {
		return fmt.Errorf("destroy workspace %s: %w", id, err)
	}
	p.sweeper.kick()
	return nil
}

// find returns the workspace of a key, if it is this provider's.
func (p *provider) find(t tx, key string) (record, error) {
	r, ok, err := t.workspaceByKey(key)
	if err != nil {
		return record{}, err
	}
	if !ok {
		return record{}, fmt.Errorf("workspace %s: not in %s: it was destroyed or never made: %w", key, p.store, workspace.ErrUnavailable)
	}
	return r, p.checkOwner(r)
}

func (p *provider) checkOwner(r record) error {
	if r.provider != p.name {
		return fmt.Errorf("workspace %s: it was made by provider %s, in the same store: %w", r.key, r.provider, workspace.ErrInvalid)
	}
	return nil
}

func (p *provider) open(r record) *document {
	return &document{id: r.id, root: r.root, key: r.key, incarnation: r.incarnation, store: p.store, sweeper: p.sweeper}
}

// listPage is how many workspaces a listing reads in one transaction.
const listPage = 256

// List tells what this provider made.
func (p *provider) List(ctx context.Context, _ workspace.ListOptions) iter.Seq2[sdk.Info, error] {
	return func(yield func(sdk.Info, error) bool) {
		for after := ""; ; {
			var page []record
			err := p.store.view(ctx, func(t tx) (err error) {
				page, err = t.workspaces(p.name, after, listPage)
				return err
			})
			if err != nil {
				yield(sdk.Info{}, fmt.Errorf("list workspaces: %w", err))
				return
			}
			for _, r := range page {
				if !yield(p.info(r), nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			after = page[len(page)-1].key
		}
	}
}

func (p *provider) info(r record) sdk.Info {
	info := sdk.Info{
		ID: r.key, Labels: r.labels, Created: r.created, State: "stored",
		Details: map[string]string{"bytes": strconv.FormatInt(r.used, 10), "store": p.store.String()},
	}
	if r.named {
		info.Name = r.key
	}
	return info
}

// Announce tells that labels are kept.
func (p *provider) Announce() []workspace.Feature {
	return []workspace.Feature{workspace.FeatureLabels}
}

// Ephemeral reports whether workspaces end with this process.
func (p *provider) Ephemeral() bool { return p.memory }

// Deviations are those of store memory.
func (p *provider) Deviations() []sdk.Deviation {
	if !p.memory {
		return nil
	}
	const reason = "store memory: workspaces end with the plugin's process, and their refs are unavailable afterwards"
	return []sdk.Deviation{{Rule: "L6", Reason: reason}, {Rule: "B2", Reason: reason}, {Rule: "B3", Reason: reason}}
}

// Close ends the use of the store. Workspaces in a file live on.
func (p *provider) Close() error {
	return errors.Join(p.sweeper.close(), p.store.close())
}

func joinClose(err error, st store) error { return errors.Join(err, st.close()) }
