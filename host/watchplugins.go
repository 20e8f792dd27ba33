package host

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/host/internal/catalog"
)

const (
	// watchInterval is between two looks at a provider's binary, a stat of each
	// plugin folder. It is also how long a new one must have stayed as it is before
	// it is started: one that is being written changes more often. Looking works
	// where notifications do not: on network file systems, through links, and in
	// folders that do not exist yet.
	watchInterval = time.Second
	// watchRetry is after what time a binary that did not come up is tried again, as
	// it may not have been its fault. It doubles up to watchRetryMax, since each try
	// is a process, and a line in the log.
	watchRetry    = 30 * time.Second
	watchRetryMax = 10 * time.Minute
)

// pluginWatch follows the binary of a provider whose plugin runs. With none running
// there is nothing to do: the next call starts what is there then.
type pluginWatch struct {
	p *provider
	// candidate was found a look ago, and is not what runs.
	candidate catalog.Binary
	// refused did not come up. It is tried again at retryAt.
	refused catalog.Binary
	retryAt time.Time
	pause   time.Duration
	// unfit is what a look said of what may not be started, such as bytes that are
	// not the locked ones; told is what of that the operator was told.
	unfit, told string
}

// watchPlugins has every provider's plugin swapped when its binary changes. It ends
// with h.ctx; Shutdown waits for it.
func (h *Host) watchPlugins() {
	for _, p := range h.providers {
		if p.config.InProcess != nil {
			continue
		}
		w := &pluginWatch{p: p}
		h.tasks.Go(func() { w.follow(h.ctx) })
	}
}

func (w *pluginWatch) follow(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// look takes one look, and swaps if it is time to.
func (w *pluginWatch) look(ctx context.Context) {
	before := w.candidate
	w.candidate = catalog.Binary{}
	running, ok := w.p.super.Running()
	if !ok {
		w.unfit, w.told = "", ""
		return
	}
	found, err := w.p.find()
	if err != nil {
		w.tell(err)
		return
	}
	if found.Same(running) {
		w.restored()
		return
	}
	w.unfit, w.told = "", ""
	if found.Same(w.refused) && (w.retryAt.IsZero() || time.Now().Before(w.retryAt)) {
		return
	}
	if w.candidate = found; !found.Same(before) {
		return
	}
	w.candidate = catalog.Binary{}
	w.note(found, w.p.super.Reload(ctx))
}

// tell tells once of what may not be started, when it is the same in two looks: a
// file that is being written is not. One that is removed leaves its process.
func (w *pluginWatch) tell(err error) {
	if errors.As(err, new(*catalog.NotFoundError)) {
		return
	}
	before := w.unfit
	if w.unfit = err.Error(); w.unfit == before && w.unfit != w.told {
		w.told = w.unfit
		w.p.super.NoteFound(err)
	}
}

// restored ends what was told of another binary: the one that runs is found again.
func (w *pluginWatch) restored() {
	if w.told != "" || w.refused.Path != "" {
		w.p.super.NoteFound(nil)
	}
	w.unfit, w.told, w.refused = "", "", catalog.Binary{}
}

// note keeps what became of a swap. Why it failed is in the log, the status and the
// events.
func (w *pluginWatch) note(bin catalog.Binary, err error) {
	if err == nil {
		w.refused = catalog.Binary{}
		return
	}
	if bin.Same(w.refused) {
		w.pause = min(2*w.pause, watchRetryMax)
	} else {
		w.pause = watchRetry
	}
	w.refused, w.retryAt = bin, time.Now().Add(w.pause)
	if errors.Is(err, errors.ErrUnsupported) { // it never will be
		w.retryAt = time.Time{}
	}
}
