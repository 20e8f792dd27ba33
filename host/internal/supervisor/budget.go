package supervisor

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/host/internal/budget"
	"github.com/berth-dev/berth/host/internal/events"
)

const (
	// DefaultBudgetInterval is between two readings of what a plugin uses: short
	// enough to come before a machine is out of memory, and a reading takes
	// microseconds.
	DefaultBudgetInterval = time.Second
	// overReadings in a row over its memory end a plugin: what one sees may be a
	// peak that is given back at once.
	overReadings = 2
)

// watchBudget reads what a plugin's own process uses, until that has ended: from
// its soft bound on it is told, once, and over its memory it is ended.
func (s *Supervisor) watchBudget(p *plugin) {
	s.cfg.Events.Add(events.Bounded, fmt.Sprintf("pid %d: %s", p.backend.PID(), p.backend.Bounds()))
	s.logger.Debug("plugin is bounded", "pid", p.backend.PID(), "by", p.backend.Bounds())
	limits := s.cfg.Limits.WithDefaults()
	if limits.MemorySoft == 0 {
		return
	}
	tick := time.NewTicker(s.cfg.BudgetInterval)
	defer tick.Stop()
	for use := (memoryUse{limits: limits}); ; {
		select {
		case <-tick.C:
		case <-p.backend.Exited():
			return
		case <-s.cut:
			return
		}
		used, err := budget.Used(p.backend.PID())
		if err != nil || exited(p.backend.Exited()) {
			continue // it is ending, or of another process by now
		}
		warn, end := use.read(used)
		if warn {
			s.warnSoft(p, used, limits)
		}
		if end {
			p.backend.Kill(fmt.Sprintf("it used %s of memory, its budget is %s", budget.About(used), budget.Size(limits.Memory)))
			return
		}
	}
}

// memoryUse is what a plugin was seen to use.
type memoryUse struct {
	limits budget.Limits
	over   int  // readings in a row over its memory
	told   bool // of its soft bound
}

// read takes a reading, and tells what to do about it.
func (u *memoryUse) read(used int64) (warn, end bool) {
	if u.over++; u.limits.Memory == 0 || used <= u.limits.Memory {
		u.over = 0
	}
	warn = used > u.limits.MemorySoft && !u.told
	u.told = u.told || warn
	return warn, u.over == overReadings
}

func (s *Supervisor) warnSoft(p *plugin, used int64, limits budget.Limits) {
	text := fmt.Sprintf("pid %d uses %s of memory, more than its soft budget of %s", p.backend.PID(), budget.About(used), budget.Size(limits.MemorySoft))
	if limits.Memory > 0 {
		text += fmt.Sprintf("; at %s it is ended", budget.Size(limits.Memory))
	}
	s.cfg.Events.Add(events.OverSoft, text)
	s.logger.Warn("plugin uses much memory", "pid", p.backend.PID(), "used", used, "soft", limits.MemorySoft, "budget", limits.Memory)
}
