package posix

import (
	"errors"
	"sync"
	"time"
)

const (
	// minIdle is how many supervisors wait for the next command however long it
	// takes: 2 MB of their own each, beside what they share as the same binary,
	// against the milliseconds that starting one takes.
	minIdle = 3
	// maxIdle is how many wait while commands come and go.
	maxIdle = 32
	// idleFor is how long those beyond minIdle wait: as many commands at once as
	// there were a moment ago may come again.
	idleFor = 5 * time.Second
	// helperTimeout is for an answer of a helper that needs only the processor.
	// It is long: a machine may be busy, and nothing else can be done then.
	helperTimeout = 30 * time.Second
)

// pool holds the supervisors of this process. It is empty and nothing runs
// while no workspace is open.
type pool struct {
	groups []string // where keepers, and so commands, are put; set by Main

	mu      sync.Mutex
	users   int // open workspaces, and commands that are not closed
	all     map[*helper]struct{}
	idle    []*helper   // who has waited longest is first
	surplus *time.Timer // lets those beyond minIdle go; nil while there are none
	keeper  *keeperConn
}

// supervisors is one for the process, whatever the number of its workspaces,
// as its children are the process's too.
var supervisors pool

func (p *pool) retain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
}

// release ends all helpers when their last user goes, and waits for them. Those
// that stay with background children go their own way.
func (p *pool) release() {
	p.mu.Lock()
	p.users--
	if p.users > 0 {
		p.mu.Unlock()
		return
	}
	all, keeper := p.all, p.keeper
	p.all, p.idle, p.keeper = nil, nil, nil
	if p.surplus != nil {
		p.surplus.Stop()
		p.surplus = nil
	}
	p.mu.Unlock()
	for h := range all {
		h.hangUp()
		<-h.done
	}
	if keeper != nil {
		keeper.leave()
	}
}

// get returns a supervisor for one command.
func (p *pool) get() (*helper, error) {
	p.mu.Lock()
	for len(p.idle) > 0 {
		h := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if h.conn.alive() {
			p.mu.Unlock()
			return h, nil
		}
	}
	p.mu.Unlock()
	return p.spawn()
}

// put takes a supervisor back, or lets it go.
func (p *pool) put(h *helper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ours := p.all[h]; !ours || len(p.idle) >= maxIdle {
		h.hangUp()
		return
	}
	h.idleSince = time.Now()
	p.idle = append(p.idle, h)
	if len(p.idle) > minIdle && p.surplus == nil {
		p.surplus = time.AfterFunc(idleFor, p.trim)
	}
}

// trim lets those go that are more than is needed.
func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.surplus == nil {
		return // everyone has gone
	}
	p.surplus = nil
	for len(p.idle) > minIdle {
		left := idleFor - time.Since(p.idle[0].idleSince)
		if left > 0 {
			p.surplus = time.AfterFunc(left, p.trim)
			return
		}
		p.idle[0].hangUp()
		p.idle = p.idle[1:]
	}
}

func (p *pool) forget(h *helper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, h)
	for i, other := range p.idle {
		if other == h {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return
		}
	}
}

// spawn starts a supervisor, and a keeper if there is none or it was killed.
func (p *pool) spawn() (*helper, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, refusal("", "start", errnoOf(err))
	}
	defer theirs.Close()
	const tries = 2 // a keeper may be found dead once
	var pid int
	var k *keeperConn
	for range tries {
		if k, err = p.theKeeper(); err != nil {
			break
		}
		if pid, err = k.spawn(theirs); err == nil || !k.gone() {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, ours.close())
	}
	h := &helper{conn: ours, pool: p, keeper: k, pid: pid, done: make(chan struct{})}
	p.mu.Lock()
	if p.all == nil {
		p.all = make(map[*helper]struct{})
	}
	p.all[h] = struct{}{}
	p.mu.Unlock()
	go h.listen()
	return h, nil
}

func (p *pool) theKeeper() (*keeperConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keeper != nil && !p.keeper.gone() {
		return p.keeper, nil
	}
	k, err := startKeeper(p.groups)
	if err == nil {
		p.keeper = k
	}
	return k, err
}

// sweep stops what a killed supervisor has left, and tells what could not be. Only
// its own keeper has inherited that.
func (h *helper) sweep() string {
	answer, err := h.keeper.ask(message{kind: kindSweep, num: int64(h.pid)}, kindSwept)
	if err != nil {
		return "unknown: the supervisor was killed, and stopping what it left: " + err.Error()
	}
	return answer.text
}
