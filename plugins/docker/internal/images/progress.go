package images

import (
	"time"

	"github.com/berth-dev/berth/plugin/sdk"
)

// reportEvery is the least time between two reports of a pull: an engine on a
// fast network tells of hundreds of pieces a second.
const reportEvery = 100 * time.Millisecond

// progress adds up what the engine says of the layers of an image. What it
// returns never goes back.
type progress struct {
	text   string
	layers map[string]*layer
	most   int64 // told so far
	last   time.Time
}

// layer is how far the download of one layer is, in bytes.
type layer struct{ done, total int64 }

func newProgress(name string) *progress {
	return &progress{text: "pulling " + name, layers: map[string]*layer{}}
}

// layersLimit bounds what is remembered. An image has at most 127 layers.
const layersLimit = 1000

// add takes a message in, and reports whether the sum is worth telling.
func (p *progress) add(m message, now time.Time) (sdk.Progress, bool) {
	if m.ID == "" {
		return sdk.Progress{}, false
	}
	l := p.layers[m.ID]
	if l == nil {
		if len(p.layers) == layersLimit {
			return sdk.Progress{}, false
		}
		l = &layer{}
		p.layers[m.ID] = l
	}
	switch m.Status {
	case "Downloading":
		l.total = max(l.total, m.ProgressDetail.Total)
		l.done = max(l.done, m.ProgressDetail.Current)
		if l.total > 0 {
			l.done = min(l.done, l.total)
		}
	case "Verifying Checksum", "Download complete", "Extracting", "Pull complete":
		// A small layer is complete before anything else is told of it.
		l.total = max(l.total, m.ProgressDetail.Total)
		l.done = l.total
	default:
		return sdk.Progress{}, false
	}
	var done, total int64
	for _, l := range p.layers {
		done += l.done
		total += l.total
	}
	p.most = max(p.most, done)
	all := p.most >= total
	if total == 0 || (!all && now.Sub(p.last) < reportEvery) {
		return sdk.Progress{}, false
	}
	p.last = now
	return sdk.Progress{Text: p.text, Done: p.most, Total: max(total, p.most), Unit: "bytes"}, true
}
