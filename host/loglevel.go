package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/host/internal/events"
	"github.com/berth-dev/berth/host/internal/supervisor"
	"github.com/berth-dev/berth/shared/wire/berthv1"
	"github.com/berth-dev/berth/shared/workspace"
)

// tellLevelWait is how long a plugin may take to hear of its log level: it has
// nothing to do for that.
const tellLevelWait = 5 * time.Second

// pluginLevel is what a plugin logs from on by itself; the host leaves out what its
// own logger does not want.
const pluginLevel = hclog.Debug

// SetLogLevel has a provider log from a level on, at once and for as long as this
// host lives, and "" the host itself, with each provider that has no level of its
// own. [hclog.NoLevel] takes a provider's level back: it is the host's then.
//
// What runs is told, so that it makes no more records than are wanted, or more. A
// plugin that knows no levels, since its SDK is older, makes its records from debug
// on as ever: the level holds for what the host passes on, and the error, for which
// [errors.ErrUnsupported] is found, says so. A level below that of [Config.Logger]
// takes one that was made with IndependentLevels, or the records end there; then too
// there is an error.
func (h *Host) SetLogLevel(provider string, level hclog.Level) error {
	if level < hclog.NoLevel || level > hclog.Off {
		return fmt.Errorf("log level %d: there are 1 (trace) to 6 (off): %w", level, workspace.ErrInvalid)
	}
	if provider != "" {
		p, err := h.provider(provider)
		if err != nil {
			return err
		}
		return p.setLogLevel(level)
	}
	if level == hclog.NoLevel {
		return fmt.Errorf("log level of the host: it needs one: %w", workspace.ErrInvalid)
	}
	h.logger.SetLevel(level)
	var errs []error
	for _, name := range sortedKeys(h.providers) {
		if p := h.providers[name]; p.log.own() == hclog.NoLevel {
			errs = append(errs, p.setLogLevel(hclog.NoLevel))
		}
	}
	return errors.Join(errs...)
}

func (p *provider) setLogLevel(level hclog.Level) error {
	p.events.Add(events.Level, levelName(level))
	return errors.Join(p.log.set(level), p.tellRunning())
}

func levelName(level hclog.Level) string {
	if level == hclog.NoLevel {
		return "the host's own"
	}
	return level.String()
}

// tellRunning tells the plugin that serves, if one does, and then those that are
// leaving, which need not hear it any more. The next ones are told with their
// configuration.
func (p *provider) tellRunning() (err error) {
	for _, inst := range p.super.Alive() {
		failed := p.tellLevel(inst)
		select {
		case <-inst.Leaving():
		default:
			err = failed
		}
		inst.Release()
	}
	return err
}

// tellLevel tells a plugin what level holds now.
func (p *provider) tellLevel(inst *supervisor.Instance) error {
	p.telling.Lock() // so that the last level is told last
	defer p.telling.Unlock()
	ctx, cancel := context.WithTimeout(p.host.ctx, tellLevelWait)
	defer cancel()
	op := operation{name: "set log level", on: "provider " + p.name, changes: true}
	_, err := inst.Client().SetLogLevel(ctx, &berthv1.SetLogLevelRequest{Level: p.log.wanted().String()})
	if err == nil {
		return nil
	}
	_, err = p.failure(ctx, ctx, inst, op, err)
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("provider %s: its plugin knows no log levels, and makes its records from %s on: %w", p.name, pluginLevel, errors.ErrUnsupported)
	}
	return err
}

// started tells a plugin of a level that was set while it was started.
func (p *provider) started(inst *supervisor.Instance) {
	p.mu.Lock()
	told := p.toldLevel
	p.mu.Unlock()
	if told == p.log.wanted() {
		return
	}
	if err := p.tellLevel(inst); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		p.logger.Warn("plugin was not told its log level", "error", err)
	}
}

// providerLog takes a provider's records to the host's logger, from a level of its
// own on.
type providerLog struct {
	host, out hclog.Logger // out is of the provider's name
	level     atomic.Int32 // NoLevel: the host's

	mu sync.Mutex // one change at a time
}

// newProviderLog also returns the logger that leads there.
func newProviderLog(host hclog.Logger, name string) (*providerLog, hclog.Logger) {
	l := &providerLog{host: host, out: host.Named(name)}
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	logger.RegisterSink(l)
	return l, logger
}

// Accept takes a record.
func (l *providerLog) Accept(_ string, level hclog.Level, message string, args ...any) {
	if level >= l.own() {
		l.out.Log(level, message, args...)
	}
}

func (l *providerLog) own() hclog.Level { return hclog.Level(l.level.Load()) }

// wanted is from what level on a plugin should make records.
func (l *providerLog) wanted() hclog.Level {
	if own := l.own(); own != hclog.NoLevel {
		return own
	}
	if l.host.IsTrace() {
		return hclog.Trace
	}
	return pluginLevel
}

// set changes the level. Where the logger below has levels of its own for its
// subloggers, that of ours follows.
func (l *providerLog) set(level hclog.Level) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level.Store(int32(level))
	before := l.host.GetLevel()
	if level == hclog.NoLevel {
		level = before
	}
	if l.out.GetLevel() == level {
		return nil
	}
	l.out.SetLevel(level)
	if l.host.GetLevel() == before {
		return nil
	}
	// They share one. It is not ours to change; Accept leaves out what is too much.
	l.host.SetLevel(before)
	if level < before {
		return fmt.Errorf("log level %s: the host's logger takes records from %s on, and was made without IndependentLevels", level, before)
	}
	return nil
}

// LogLevel is from what level on a provider's records are logged, and whether that
// is its own ([Host.SetLogLevel]) or the host's.
func (h *Host) LogLevel(provider string) (level hclog.Level, own bool, err error) {
	p, err := h.provider(provider)
	if err != nil {
		return hclog.NoLevel, false, err
	}
	if level = p.log.own(); level != hclog.NoLevel {
		return level, true, nil
	}
	return h.logger.GetLevel(), false, nil
}
